package check

import (
	"regexp"
	"sync"
)

// Pattern returns a function that compiles the regular expression text on its first call. Every call returns
// the compiled expression. Compiling all patterns as package variables would take a third of the program's
// start time.
func Pattern(text string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
}
