// Package check answers "can this be done here?" with three values: yes, conclusively no, and could not
// tell. It performs no checks itself.
package check

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

// State is one of the three answers. The zero value is Unknown, so that an answer nobody filled in never
// counts as a "no".
type State int

const (
	Unknown State = iota // could not tell; never remembered, never shown as "no"
	Yes                  // works here
	No                   // conclusively impossible here; may be remembered
)

// String returns "yes", "no" or "could not tell".
func (s State) String() string {
	switch s {
	case Yes:
		return "yes"
	case No:
		return "no"
	}
	return "could not tell"
}

// MarshalText encodes the state as its text, for JSON documents.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText decodes what MarshalText wrote.
func (s *State) UnmarshalText(b []byte) error {
	for _, one := range []State{Unknown, Yes, No} {
		if one.String() == string(b) {
			*s = one
			return nil
		}
	}
	return fmt.Errorf("parse check state %q: want yes, no or could not tell", b)
}

// Answer is a state with its reason and, if known, the next step.
type Answer struct {
	State  State  `json:"state"`
	Reason string `json:"reason,omitempty"` // why; empty only for a plain yes
	Hint   string `json:"hint,omitempty"`   // what the user can do about it
}

// OK returns a plain yes.
func OK() Answer { return Answer{State: Yes} }

// OKBecause returns a yes with a remark, such as "userspace implementation".
func OKBecause(format string, args ...any) Answer {
	return Answer{State: Yes, Reason: fmt.Sprintf(format, args...)}
}

// oneLine joins the lines of a text, such as joined errors, without repetitions.
func oneLine(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && !slices.ContainsFunc(lines, func(l string) bool {
			return strings.HasSuffix(l, line)
		}) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "; ")
}

// Not returns a conclusive no with its reason.
func Not(format string, args ...any) Answer {
	return Answer{State: No, Reason: oneLine(fmt.Sprintf(format, args...))}
}

// CouldNotTell returns the third answer.
func CouldNotTell(format string, args ...any) Answer {
	return Answer{State: Unknown, Reason: oneLine(fmt.Sprintf(format, args...))}
}

// Hinted returns a copy of a with the next step added.
func (a Answer) Hinted(format string, args ...any) Answer {
	a.Hint = fmt.Sprintf(format, args...)
	return a
}

// hinted is an error with the next step.
type hinted struct {
	error
	hint string
}

func (e *hinted) Unwrap() error { return e.error }
func (e *hinted) Hint() string  { return e.hint }

// WithHint adds the next step for the user to an error, unless hint is empty. The hint of an inner error
// stays, too. Callers that print the error find both by the method Hint.
func WithHint(err error, hint string) error {
	if hint == "" {
		return err
	}
	return &hinted{err, hint}
}

// HintOf returns the next step in an error, or in one that it wraps; "" if there is none.
func HintOf(err error) string {
	var h interface{ Hint() string }
	if errors.As(err, &h) {
		return h.Hint()
	}
	return ""
}

// Underlying returns the system's error about a file: err without the operation and the path, which the
// caller names itself.
func Underlying(err error) error {
	if e, ok := err.(*fs.PathError); ok {
		return e.Err
	}
	return err
}
