package guest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Modprobe loads the modules that args name, for the kernel, to which nobody listens, or for a user, and
// reports whether all of them are there. Only what went wrong is talked about; if that is to be quiet, a
// module that exists and does not load is noted in the kernel's log instead.
func Modprobe(args []string, messages io.Writer) bool {
	r, err := parseRequest(args)
	if err == nil {
		err = probe(r)
	}
	switch {
	case err == nil:
		return true
	case !r.Quiet:
		fmt.Fprintf(messages, "modprobe: error: %s\n", oneLine(err))
	case !errors.Is(err, errUnknown):
		note(err)
	}
	return false
}

func probe(r request) error {
	root, err := modulesRoot()
	if err != nil {
		return err
	}
	m, err := openModules(root, insert)
	if err != nil {
		return err
	}
	return r.serve(m)
}

// modulesRoot is the folder of the running kernel's modules.
func modulesRoot() (string, error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "", fmt.Errorf("read the kernel's release: %w", err)
	}
	return filepath.Join("/lib/modules", unix.ByteSliceToString(u.Release[:])), nil
}

// insert hands a module's file to the kernel, without parameters. The kernel would read all of a file
// before it says that the module is there.
func insert(file string) error {
	state, err := os.ReadFile("/sys/module/" + moduleName(file) + "/initstate")
	if err == nil && strings.TrimSpace(string(state)) == "live" {
		return unix.EEXIST
	}
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.FinitModule(int(f.Fd()), "", 0)
}

// note writes a line to the kernel's log, at the level of warnings.
func note(err error) {
	f, openErr := os.OpenFile("/dev/kmsg", os.O_WRONLY, 0)
	if openErr != nil {
		return // there is no better place to say so
	}
	defer f.Close()
	fmt.Fprintf(f, "<4>chokepoint: modprobe: %s\n", oneLine(err))
}
