package record

import "slices"

// Experiment holds what a plan of steps puts to the test: that one resource holds the traffic back. A factor
// takes steps of the resource away, or adds some, between untouched windows.
type Experiment struct {
	Run    string `json:"run,omitempty"` // whose finding it is
	Class  string `json:"class"`         // of the finding, such as "shaper"
	Factor string `json:"factor"`        // with its place
	// Steps may be none where Fix alone, which takes the limit away, is put to the test.
	Steps []SweepStep `json:"steps"`
	// Expect is the elasticity of the rate, Δ ln rate ÷ Δ ln resource, if the finding is right.
	Expect float64 `json:"expect"`
	Fix    string  `json:"fix,omitempty"` // level that takes the limit away
	Why    string  `json:"why,omitempty"`
}

// SweepStep is a level, and what it leaves of the resource: 0.9 = 90 %.
type SweepStep struct {
	Level    string  `json:"level"`
	Resource float64 `json:"resource"`
}

// Untouched says that a cell of the experiment has none of its steps, nor what takes the limit away.
func (e *Experiment) Untouched(c Factors) bool {
	level := c[e.Factor]
	return (e.Fix == "" || level != e.Fix) &&
		!slices.ContainsFunc(e.Steps, func(d SweepStep) bool { return d.Level == level })
}
