package rest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// mostPassword bounds what a file of a password may hold, in bytes.
const mostPassword = 4 << 10

// Password is the first line of a file that nobody else can read, or the value of the environment variable
// host.RouterPassword where no file is named.
func Password(file string) (host.Secret, error) {
	if file == "" {
		text, set := os.LookupEnv(host.RouterPassword)
		if !set {
			return host.Secret{}, check.WithHint(errors.New("nobody has told the router's password"),
				"set "+host.RouterPassword+", or name a file by password_file in the lab file")
		}
		return host.SecretFrom([]byte(text)), nil
	}
	f, err := os.Open(file)
	if err != nil {
		return host.Secret{}, fmt.Errorf("read the router's password: %w", err)
	}
	defer f.Close()
	i, err := f.Stat()
	switch {
	case err != nil:
		return host.Secret{}, fmt.Errorf("read the router's password: %w", err)
	case !i.Mode().IsRegular():
		return host.Secret{}, fmt.Errorf("read the router's password: %s is no file", file)
	case i.Mode().Perm()&0o077 != 0:
		return host.Secret{}, check.WithHint(fmt.Errorf("others can read the router's password in %s, or "+
			"change it", file), "chmod 600 it, and change the password")
	}
	b, err := io.ReadAll(io.LimitReader(f, mostPassword+1))
	line, _, _ := strings.Cut(string(b), "\n")
	line = strings.TrimSuffix(line, "\r")
	if err == nil && (line == "" || len(b) > mostPassword) {
		err = fmt.Errorf("the first line of %s is none", file)
	}
	if err != nil {
		return host.Secret{}, fmt.Errorf("read the router's password: %w", err)
	}
	return host.SecretFrom([]byte(line)), nil
}
