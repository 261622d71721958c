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

// Modprobe loads the modules named in args, and reports whether all of them are loaded. It prints errors to
// messages. The kernel runs it in quiet mode, where nothing reads the output. In this mode, it writes to the
// kernel's log if a module exists but cannot be loaded.
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

// loadModules loads modules of the running kernel and their dependencies.
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

// insert loads a module file. It first checks whether the module is loaded, because the kernel would read the
// whole file before it reports that.
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
		return // because the error cannot be reported anywhere else
	}
	defer f.Close()
	fmt.Fprintf(f, "<4>chokepoint: modprobe: %s\n", oneLine(err))
}
