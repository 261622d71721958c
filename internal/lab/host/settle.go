package host

import (
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
)

// Settle makes this process independent of the search path, resource limits and scheduling class that it
// inherited. It also determines how a crash ends the process. Call it first in main.
//
// A crash raises SIGABRT. Otherwise, the runtime would usually exit with code 2 on a panic, and this code
// means "wrong input, nothing was changed" in this program. Settle keeps only absolute directories in PATH.
func Settle() {
	debug.SetTraceback("crash")
	os.Setenv("PATH", absolute(os.Getenv("PATH")))
	resetLimits()
}

// usualPath is the search path if PATH has no absolute directory.
const usualPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// absolute removes relative directories from a search path.
func absolute(path string) string {
	dirs := slices.DeleteFunc(filepath.SplitList(path), func(dir string) bool { return !filepath.IsAbs(dir) })
	if len(dirs) == 0 {
		return usualPath
	}

	return strings.Join(dirs, string(filepath.ListSeparator))
}
