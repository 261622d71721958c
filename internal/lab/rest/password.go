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

// Password is what the router lets us in by: what is in a file that nobody else can read, or the value of the
// environment variable host.RouterPassword where no file is named. It is the first line, or of OPNsense
// "KEY:SECRET", out of the file that it has one download.
func Password(d Destination, file string) (host.Secret, error) {
	text, set := os.LookupEnv(host.RouterPassword)
	if file != "" {
		b, err := private(file)
		if err != nil {
			return host.Secret{}, fmt.Errorf("read the router's password or API key: %w", err)
		}
		text = string(b)
	} else if !set {
		return host.Secret{}, check.WithHint(errors.New("nobody has told the router's "+
			map[bool]string{true: "API key", false: "password"}[d.OPNsense()]), "set "+host.RouterPassword+
			", or name a file by password_file in the lab file")
	}
	line, _, _ := strings.Cut(text, "\n")
	line = strings.TrimSuffix(line, "\r")
	if d.OPNsense() {
		if key, secret := apiKey(text); key != "" && secret != "" {
			return host.SecretFrom([]byte(key + ":" + secret)), nil
		}
		return host.Secret{}, check.WithHint(errors.New("read the router's API key: it is none"),
			"it is what the router has one download in System, Access, Users: lines key=… and secret=…; or "+
				"KEY:SECRET")
	}
	if file != "" && line == "" {
		return host.Secret{}, fmt.Errorf("read the router's password: the first line of %s is none", file)
	}
	return host.SecretFrom([]byte(line)), nil
}

// apiKey reads a key of OPNsense's API as its page writes it (core, views/OPNsense/Auth/user.volt), or as a
// line. Both halves are in base64, which has no colon.
func apiKey(text string) (key, secret string) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if v, ok := strings.CutPrefix(line, "key="); ok {
			key = v
		} else if v, ok := strings.CutPrefix(line, "secret="); ok {
			secret = v
		} else if k, v, ok := strings.Cut(line, ":"); ok && key == "" {
			key, secret = k, v
		}
	}
	return key, secret
}

// private is what is in a small file that nobody else can read.
func private(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	i, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !i.Mode().IsRegular():
		return nil, fmt.Errorf("%s is no file", file)
	case i.Mode().Perm()&0o077 != 0:
		return nil, check.WithHint(fmt.Errorf("others can read the router's password in %s, or change it",
			file), "chmod 600 it, and change the password")
	case i.Size() > mostPassword:
		return nil, fmt.Errorf("%s has more than %d bytes", file, mostPassword)
	}
	return io.ReadAll(io.LimitReader(f, mostPassword))
}
