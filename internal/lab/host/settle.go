package host

import (
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
)

// Settle gives this process a known state, whoever started it. A program calls it first.
//
// A panic of the program, or of Go's runtime, ends it by SIGABRT: the runtime's own exit code, 2, would mean
// that nothing was touched. Programs are searched only in absolute directories.
func Settle() {
	debug.SetTraceback("crash")
	os.Setenv("PATH", absolute(os.Getenv("PATH")))
	resetLimits()
}

// usualPath is where programs are searched if no directory is left.
const usualPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// absolute removes the elements of a search path that depend on the working directory.
func absolute(path string) string {
	dirs := slices.DeleteFunc(filepath.SplitList(path), func(dir string) bool { return !filepath.IsAbs(dir) })
	if len(dirs) == 0 {
		return usualPath
	}

	text := dirs[0]
	for _, dir := range dirs[1:] {
		text += string(filepath.ListSeparator) + dir
	}

	return text
}
