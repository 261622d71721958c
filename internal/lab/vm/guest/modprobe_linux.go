package guest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Modprobe loads the modules named in args, and reports whether all of them are loaded. It prints errors to
// standard error. In quiet mode, it instead writes an error to the kernel's log if a module exists but cannot
// be loaded. The kernel uses quiet mode, because nothing reads the output.
func Modprobe(args []string) bool {
	names, quiet, err := parseRequest(args)
	if err == nil {
		err = loadModules(names)
	}

	switch {
	case err == nil:
		return true
	case !quiet:
		fmt.Fprintf(os.Stderr, "modprobe: error: %s\n", oneLine(err))
	case !errors.Is(err, errUnknown):
		note(err)
	}

	return false
}

// loadModules loads modules of the running kernel and their dependencies.
func loadModules(names []string) error {
	var u unix.Utsname
	unix.Uname(&u) // never returns an error
	m, err := openModules(filepath.Join("/lib/modules", unix.ByteSliceToString(u.Release[:])), insert)
	if err != nil {
		return err
	}

	return m.wantAll(names)
}

// insert loads a module file. It first checks whether the module is already loaded. The kernel would report
// this, too, but only after it has read the whole file.
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

// note writes an error to the kernel's log as a warning.
func note(err error) {
	f, openErr := os.OpenFile("/dev/kmsg", os.O_WRONLY, 0)
	if openErr != nil {
		return // the error cannot be reported anywhere else
	}
	defer f.Close()
	fmt.Fprintf(f, "<4>chokepoint: modprobe: %s\n", oneLine(err))
}
