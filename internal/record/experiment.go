package record

import "slices"

// Experiment is what a plan of steps tests: that one resource limits the traffic. A factor takes parts of the
// resource away, or adds to it, between untouched windows.
type Experiment struct {
	Run    string `json:"run,omitempty"` // run with the finding
	Class  string `json:"class"`         // class of the finding, such as "shaper"
	Factor string `json:"factor"`        // with its place
	// Steps may be empty if only Fix, which removes the limit, is tested.
	Steps []SweepStep `json:"steps"`
	// Expect is the elasticity of the rate, Δ ln rate ÷ Δ ln resource, if the finding is right.
	Expect float64 `json:"expect"`
	Fix    string  `json:"fix,omitempty"` // level that removes the limit
	Why    string  `json:"why,omitempty"`
}

// SweepStep is a level, and the share of the resource that it leaves: 0.9 = 90 %.
type SweepStep struct {
	Level    string  `json:"level"`
	Resource float64 `json:"resource"`
}

// Untouched reports whether a cell of the experiment has none of its steps, nor the fix.
func (e *Experiment) Untouched(c Factors) bool {
	level := c[e.Factor]
	return (e.Fix == "" || level != e.Fix) &&
		!slices.ContainsFunc(e.Steps, func(d SweepStep) bool { return d.Level == level })
}
