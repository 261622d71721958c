package check

import (
	"regexp"
	"sync"
)

// Pattern returns a function that compiles the regular expression text at its first call, and returns it at
// every call. If all patterns were compiled as package variables, this would take a third of the program's
// start time.
func Pattern(text string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
}
