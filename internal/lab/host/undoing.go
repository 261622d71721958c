package host

import (
	"errors"
	"fmt"
	"slices"
)

// Undoing is a stack of what undoes what a handler did, the last first.
type Undoing []func() error

// Add puts f on the stack, before what it undoes is done.
func (u *Undoing) Add(f func() error) { *u = append(*u, f) }

// Run undoes everything, and joins what could not be undone to err as ErrNotUndone.
func (u Undoing) Run(err *error) {
	for _, f := range slices.Backward(u) {
		if undoErr := f(); undoErr != nil {
			*err = errors.Join(*err, fmt.Errorf("%w: %w", ErrNotUndone, undoErr))
		}
	}
}
