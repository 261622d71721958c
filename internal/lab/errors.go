package lab

import "errors"

// ErrDirty means that something could not be put back; what is left is in the error's text, and `lab
// restore` tries again.
var ErrDirty = errors.New("left dirty")

// NoTopology says that the labs at hand do not have a shape.
type NoTopology struct{ Topology, Reason string }

func (e *NoTopology) Error() string { return "topology " + e.Topology + ": " + e.Reason }
