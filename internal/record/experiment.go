package record

import "slices"

// Experiment describes a test of the finding that one resource limits the traffic. A factor reduces or
// increases the resource in steps. Between the steps, there are windows without any change.
type Experiment struct {
	Run    string `json:"run,omitempty"` // id of the run with the finding
	Class  string `json:"class"`         // class of the finding, such as "shaper"
	Factor string `json:"factor"`        // name of the factor, including the place
	// Steps lists the steps. It may be empty if only Fix is tested.
	Steps []SweepStep `json:"steps"`
	// Expect is the elasticity of the rate, Δ ln rate ÷ Δ ln resource, that the finding predicts.
	Expect float64 `json:"expect"`
	Fix    string  `json:"fix,omitempty"` // level that removes the limit
	Why    string  `json:"why,omitempty"`
}

// SweepStep holds a level, and the share of the resource that the level leaves. A share of 0.9 means 90 %.
type SweepStep struct {
	Level    string  `json:"level"`
	Resource float64 `json:"resource"`
}

// Untouched reports whether the cell c has neither the level of a step nor the fix.
func (e *Experiment) Untouched(c Factors) bool {
	level := c[e.Factor]
	return (e.Fix == "" || level != e.Fix) &&
		!slices.ContainsFunc(e.Steps, func(d SweepStep) bool { return d.Level == level })
}
