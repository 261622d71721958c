package host

import (
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
)

// Settle makes of this process what it would be whoever started it. A program calls it first.
//
// A fault of the program, or of Go's runtime, ends it by SIGABRT: the runtime's own exit code, 2, would say
// that nothing was touched. Programs are looked for in absolute directories alone.
func Settle() {
	debug.SetTraceback("crash")
	os.Setenv("PATH", absolute(os.Getenv("PATH")))
	resetLimits()
}

// usualPath holds where programs are looked for if no place is left.
const usualPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// absolute is a search path without what depends on the directory that a user happens to be in.
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
