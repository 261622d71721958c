// Package evidence holds what qualifies the numbers of a result: grades, reasons to doubt, findings.
package evidence

// Grades of a cell or trial.
const (
	GradeValid      = "valid"
	GradeSuspect    = "suspect"     // has numbers, with reasons to doubt them
	GradeFailed     = "failed"      // has no numbers
	GradeNotReached = "not reached" // a cell without a trial: the run ended before it
	GradeSkipped    = "skipped"     // in tables for other programs: a cell that was not run
)

// Evidence is one observation: the basis of a reason or finding. What does not apply is empty.
type Evidence struct {
	Metric string `json:"metric,omitempty"` // a metric, or a column of a probe
	Node   string `json:"node,omitempty"`   // where it was seen
	// part of the node: a core, a device, a thread, a stream …
	Element string   `json:"element,omitempty"`
	Value   *float64 `json:"value,omitempty"` // in the metric's unit
	Low     *float64 `json:"low,omitempty"`   // the value's interval
	High    *float64 `json:"high,omitempty"`
	// Baseline is the value's reference: the same metric idle, without the tunnel, or its limit.
	Baseline *float64 `json:"baseline,omitempty"`
	Text     string   `json:"text,omitempty"`  // in words, if they add to those of the reason or finding
	Trial    string   `json:"trial,omitempty"` // its trial, if it is of one
}

// Reason explains why a cell or trial is suspect. docs/reference/reasons.md lists the values of Kind.
type Reason struct {
	Kind  string     `json:"kind"`
	Text  string     `json:"text"`
	Trial string     `json:"trial,omitempty"`
	Facts []Evidence `json:"facts,omitempty"`
}

// Unchecked is a check of a trial that could not be made: whether its reason applies is unknown.
type Unchecked struct {
	Kind string `json:"kind"` // kind of the reason
	Text string `json:"text"` // why it could not be made
}

// Finding is a named observation about a cell. docs/reference/reasons.md lists the values of Kind.
type Finding struct {
	Kind       string     `json:"kind"`
	Text       string     `json:"text"`
	Confidence float64    `json:"confidence,omitempty"`
	Words      []string   `json:"evidence,omitempty"` // the facts in words
	Facts      []Evidence `json:"facts,omitempty"`
}

// NewFinding returns a finding based on facts.
func NewFinding(kind, text string, facts ...Evidence) Finding {
	f := Finding{Kind: kind, Text: text, Facts: facts}
	for _, e := range facts {
		if e.Text != "" {
			f.Words = append(f.Words, e.Text)
		}
	}
	return f
}
