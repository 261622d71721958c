package vm

import "strings"

// hinted adds the next step to an error.
type hinted struct {
	error
	hint string
}

func (h *hinted) Unwrap() error { return h.error }

// Hint is the next step for the user.
func (h *hinted) Hint() string { return h.hint }

const ownKernel = "give a kernel and its modules: --kernel FILE --modules DIR"

// oneLine is an error that carries what a program said in many.
type oneLine struct{ err error }

func (e *oneLine) Error() string { return strings.Join(strings.Fields(e.err.Error()), " ") }
func (e *oneLine) Unwrap() error { return e.err }
