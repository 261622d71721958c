package app

import (
	"errors"
	"fmt"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab"
)

// These are kinds of errors, for use with errors.Is. Another kind is lab.ErrDirty, for a lab that could not
// be restored. The command line maps each kind to an exit code.
var (
	// ErrUsage marks an invalid request. Nothing was changed.
	ErrUsage = errors.New("wrong request")
	// ErrFailed marks a run in which trials failed, or which measured nothing.
	ErrFailed = errors.New("trials failed")
	// ErrThreshold marks a threshold that was not met, or a regression.
	ErrThreshold = errors.New("threshold missed")
	// ErrInterrupted is the cause of a context that was cancelled by a signal.
	ErrInterrupted = errors.New("interrupted")
)

// marked adds a kind to an error without changing its text.
type marked struct{ kind, err error }

func (m *marked) Error() string   { return m.err.Error() }
func (m *marked) Unwrap() []error { return []error{m.err, m.kind} }

// Mark marks err as an error of a kind. If err joins several errors, it marks each of them.
func Mark(kind, err error) error {
	all := Leaves(err)
	for i, e := range all {
		all[i] = &marked{kind, e}
	}
	return errors.Join(all...)
}

// Leaves returns the errors that err joins, or err itself.
func Leaves(err error) []error {
	if err == nil {
		return nil
	}

	// If the texts differ, err is a single sentence with several causes, so it is not split.
	if j, ok := err.(interface{ Unwrap() []error }); ok && err.Error() == errors.Join(j.Unwrap()...).Error() {
		var all []error
		for _, e := range j.Unwrap() {
			all = append(all, Leaves(e)...)
		}
		return all
	}
	return []error{err}
}

// Closing calls close and joins its error to err, for use with defer.
func Closing(err *error, close func() error) { *err = errors.Join(*err, close()) }

// Hinted returns an error with a formatted text. If hint is not empty, the error has this hint.
func Hinted(hint, format string, args ...any) error {
	return check.WithHint(fmt.Errorf(format, args...), hint)
}

// Usage is like Hinted, but marks the error as an ErrUsage.
func Usage(hint, format string, args ...any) error {
	return Mark(ErrUsage, Hinted(hint, format, args...))
}

// Dirty adds advice to an error about a lab that could not be restored.
func Dirty(err error) error {
	if errors.Is(err, lab.ErrDirty) {
		return check.WithHint(err, "chokepoint lab restore tries again")
	}
	return err
}
