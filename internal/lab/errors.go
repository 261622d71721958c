package lab

import "errors"

// ErrDirty means that something could not be put back; what is left is in the error's text, and `lab
// restore` tries again.
var ErrDirty = errors.New("left dirty")

// hinted adds the next step to an error.
type hinted struct {
	error
	hint string
}

func (h *hinted) Unwrap() error { return h.error }

// Hint is the next step for the user.
func (h *hinted) Hint() string { return h.hint }

// NoTopology says that the labs at hand do not have a shape.
type NoTopology struct{ Topology, Reason string }

func (e *NoTopology) Error() string { return "topology " + e.Topology + ": " + e.Reason }
