// Package check defines the answers to the question "can this be done here?": yes, no, or could not tell. It
// performs no checks itself.
package check

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

// State is one of the three answers. The zero value is Unknown, so a forgotten answer never counts as a no.
type State int

const (
	Unknown State = iota // unknown; neither cached nor shown as "no"
	Yes                  // possible here
	No                   // certainly impossible here; may be cached
)

// states lists the texts of the answers.
var states = [...]string{Unknown: "could not tell", Yes: "yes", No: "no"}

// String returns "yes", "no" or "could not tell".
func (s State) String() string { return states[s] }

// MarshalText encodes the state as its text, for JSON documents.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText decodes the output of MarshalText.
func (s *State) UnmarshalText(b []byte) error {
	i := slices.Index(states[:], string(b))
	if i < 0 {
		return fmt.Errorf("parse check state %q: want yes, no or could not tell", b)
	}

	*s = State(i)
	return nil
}

// Answer is a state with its reason and, if there is one, advice.
type Answer struct {
	State  State  `json:"state"`
	Reason string `json:"reason,omitempty"` // reason; empty only for a plain yes
	Hint   string `json:"hint,omitempty"`   // advice for the user
}

// OK returns a yes without a remark.
func OK() Answer { return Answer{State: Yes} }

// OKBecause returns a yes with a formatted remark, such as "userspace implementation".
func OKBecause(format string, args ...any) Answer {
	return Answer{State: Yes, Reason: fmt.Sprintf(format, args...)}
}

// oneLine joins the lines of a text, such as joined errors, with "; ". It omits a line if an earlier line
// ends with it.
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

// Not returns a no with a formatted reason.
func Not(format string, args ...any) Answer {
	return Answer{State: No, Reason: oneLine(fmt.Sprintf(format, args...))}
}

// CouldNotTell returns Unknown with a formatted reason.
func CouldNotTell(format string, args ...any) Answer {
	return Answer{State: Unknown, Reason: oneLine(fmt.Sprintf(format, args...))}
}

// Hinted returns a copy of a with formatted advice.
func (a Answer) Hinted(format string, args ...any) Answer {
	a.Hint = fmt.Sprintf(format, args...)
	return a
}

// hinted is an error with advice for the user.
type hinted struct {
	error
	hint string
}

func (e *hinted) Unwrap() error { return e.error }
func (e *hinted) Hint() string  { return e.hint }

// WithHint adds advice for the user to an error, unless hint is empty. If err already has a hint, both hints
// remain available: each error in the chain returns its own hint with the method Hint.
func WithHint(err error, hint string) error {
	if hint == "" {
		return err
	}
	return &hinted{err, hint}
}

// Hinted returns an error with advice for the user, unless hint is empty.
func Hinted(hint, format string, args ...any) error {
	return WithHint(fmt.Errorf(format, args...), hint)
}

// HintOf returns the advice of err or of an error that it wraps, and "" if there is none.
func HintOf(err error) string {
	var h interface{ Hint() string }
	if errors.As(err, &h) {
		return h.Hint()
	}
	return ""
}

// Is reports whether err, or an error that it wraps, has the type T.
func Is[T error](err error) bool {
	_, ok := errors.AsType[T](err)
	return ok
}

// Underlying returns the system's error without the operation and path of an fs.PathError, for callers that
// print the operation and path themselves.
func Underlying(err error) error {
	if e, ok := err.(*fs.PathError); ok {
		return e.Err
	}
	return err
}
