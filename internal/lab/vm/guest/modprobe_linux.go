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

// Modprobe loads the modules that args name, for the kernel, where nobody reads the output, or for a user,
// and reports whether all of them are loaded. It prints only failures. In quiet mode, it reports an existing
// module that does not load in the kernel's log instead.
func Modprobe(args []string, messages io.Writer) bool {
	names, quiet, err := parseRequest(args)
	if err == nil {
		err = loadModules(names)
	}

	switch {
	case err == nil:
		return true
	case !quiet:
		fmt.Fprintf(messages, "modprobe: error: %s\n", oneLine(err))
	case !errors.Is(err, errUnknown):
		note(err)
	}

	return false
}

// loadModules loads modules of the running kernel, with their dependencies.
func loadModules(names []string) error {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return fmt.Errorf("read the kernel's release: %w", err)
	}

	m, err := openModules(filepath.Join("/lib/modules", unix.ByteSliceToString(u.Release[:])), insert)
	if err != nil {
		return err
	}

	return m.wantAll(names)
}

// insert passes a file to the kernel, which would read all of it before it reports that the module is already
// loaded.
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
		return // there is no better place to report it
	}
	defer f.Close()
	fmt.Fprintf(f, "<4>chokepoint: modprobe: %s\n", oneLine(err))
}
