package host

import (
	"errors"
	"fmt"
	"slices"
)

// Undoing is a stack of functions that undo the changes of a handler.
type Undoing []func() error

// Add pushes f. Call it before making the change that f undoes.
func (u *Undoing) Add(f func() error) { *u = append(*u, f) }

// Run calls all functions, the last one first. It joins their errors, wrapped in ErrNotUndone, to *err.
func (u Undoing) Run(err *error) {
	for _, f := range slices.Backward(u) {
		if undoErr := f(); undoErr != nil {
			*err = errors.Join(*err, fmt.Errorf("%w: %w", ErrNotUndone, undoErr))
		}
	}
}
