package plan

import (
	"fmt"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
)

// Error is what is wrong with a plan, and where. Every error of Read is one.
type Error struct {
	File   string // file name, or "--set PATH"; empty for a plan as a whole
	Line   int    // from 1; 0 if the error has no place in a file
	Column int    // in characters, from 1
	Text   string
	// HintText is the next step, where one is known.
	HintText string
}

func (e *Error) Error() string {
	var b strings.Builder
	if e.File != "" {
		b.WriteString(e.File)
		if e.Line > 0 {
			fmt.Fprintf(&b, ":%d:%d", e.Line, e.Column)
		}
		b.WriteString(": ")
	}
	b.WriteString(e.Text)
	return b.String()
}

// Hint is the next step, or "".
func (e *Error) Hint() string { return e.HintText }

// choiceHint helps with a misspelled word out of a list.
func choiceHint(text, noun string, allowed []string) string {
	if near := factor.Nearest(text, allowed); near != "" {
		return fmt.Sprintf("did you mean %s?", near)
	}
	return fmt.Sprintf("%s: %s", noun, strings.Join(allowed, ", "))
}
