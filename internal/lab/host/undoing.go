package host

import (
	"errors"
	"fmt"
	"slices"
)

// Undoing is a stack of functions that undo a handler's changes, last first.
type Undoing []func() error

// Add pushes f before the change that it undoes is made.
func (u *Undoing) Add(f func() error) { *u = append(*u, f) }

// Run undoes everything, and joins failures to err as ErrNotUndone.
func (u Undoing) Run(err *error) {
	for _, f := range slices.Backward(u) {
		if undoErr := f(); undoErr != nil {
			*err = errors.Join(*err, fmt.Errorf("%w: %w", ErrNotUndone, undoErr))
		}
	}
}
