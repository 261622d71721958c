package app

import (
	"errors"
	"fmt"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab"
)

// Kinds of errors, for errors.Is; so is lab.ErrDirty for a lab that could not be restored. A command line
// maps each to an exit code.
var (
	// ErrUsage marks an invalid request. Nothing was touched.
	ErrUsage = errors.New("wrong request")
	// ErrFailed marks a run that ended by itself with failed trials, or without any number.
	ErrFailed = errors.New("trials failed")
	// ErrThreshold marks a threshold that was missed, or a regression.
	ErrThreshold = errors.New("threshold missed")
	// ErrInterrupted is the cause of a context that a signal cancelled.
	ErrInterrupted = errors.New("interrupted")
)

// marked adds a kind to an error without changing its text.
type marked struct{ kind, err error }

func (m *marked) Error() string   { return m.err.Error() }
func (m *marked) Unwrap() []error { return []error{m.err, m.kind} }

// Mark returns err, or each of several joined errors, as one of a kind.
func Mark(kind, err error) error {
	all := Leaves(err)
	for i, e := range all {
		all[i] = &marked{kind, e}
	}
	return errors.Join(all...)
}

// Leaves splits joined errors.
func Leaves(err error) []error {
	if err == nil {
		return nil
	}

	// This is one sentence with several causes, not a join of errors.
	if j, ok := err.(interface{ Unwrap() []error }); ok && err.Error() == errors.Join(j.Unwrap()...).Error() {
		var all []error
		for _, e := range j.Unwrap() {
			all = append(all, Leaves(e)...)
		}
		return all
	}
	return []error{err}
}

// Hinted returns an error with a formatted text, and a hint unless that is empty.
func Hinted(hint, format string, args ...any) error {
	return check.WithHint(fmt.Errorf(format, args...), hint)
}

// Usage returns Hinted as an ErrUsage.
func Usage(hint, format string, args ...any) error {
	return Mark(ErrUsage, Hinted(hint, format, args...))
}

// Dirty adds, to an error of a lab that could not be restored, what can be done about it.
func Dirty(err error) error {
	if errors.Is(err, lab.ErrDirty) {
		return check.WithHint(err, "chokepoint lab restore tries again")
	}
	return err
}
