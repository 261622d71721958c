// Package evidence holds what is said of results besides their numbers: grades, reasons to doubt, findings.
package evidence

// Grades of a cell or trial.
const (
	GradeValid   = "valid"
	GradeSuspect = "suspect" // has numbers, with reasons to doubt them
	GradeFailed  = "failed"  // has none
)

// Reason is why a cell or trial is not plainly valid. Kind is one of the stable words that docs/method.md
// lists.
type Reason struct {
	Kind  string `json:"kind"`
	Text  string `json:"text"`
	Trial string `json:"trial,omitempty"`
}

// Reason kinds: the validity gate of ARCHITECTURE 2.7.
const (
	ReasonTesterLimited  = "tester-limited"
	ReasonNotInTunnel    = "not-in-tunnel"
	ReasonAboveCeiling   = "above-ceiling"
	ReasonThrottled      = "throttled"
	ReasonBackgroundLoad = "background-load"
	ReasonSamplerStalled = "sampler-stalled"
	ReasonKernelLog      = "kernel-log-error"
	ReasonLinkFlap       = "link-flap"
	ReasonWrongMTU       = "wrong-path-mtu"
	ReasonCorrupt        = "corrupt-content"
	ReasonAccounting     = "accounting" // sent ≠ received + lost
	ReasonDrift          = "drift"
	ReasonFailedTrials   = "failed-trials"
	ReasonLateProbe      = "late-probe" // the latency probe's own timer error is large
	ReasonLateEdge       = "late-edge"  // an end read its counts late, at an edge of the window
)

// Finding is a named observation about a cell, with its evidence.
type Finding struct {
	Kind       string   `json:"kind"`
	Text       string   `json:"text"`
	Confidence float64  `json:"confidence,omitempty"`
	Evidence   []string `json:"evidence,omitempty"`
}
