package check

import (
	"regexp"
	"sync"
)

// Pattern returns a function that returns the regular expression text, compiled at the first call. Compiled
// as package variables, all patterns would take a third of the time in which the program starts.
func Pattern(text string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
}
