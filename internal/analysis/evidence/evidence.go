// Package evidence defines what accompanies the numbers of a result: grades, reasons for doubt, caveats and
// findings.
package evidence

// Grades of a cell or trial. The last two apply only to cells.
const (
	GradeValid      = "valid"
	GradeSuspect    = "suspect"     // has numbers, but also reasons to doubt them
	GradeFailed     = "failed"      // has no numbers
	GradeNotReached = "not reached" // a cell without a trial, because the run ended first
	GradeSkipped    = "skipped"     // a cell that was not run; used only in tables for other programs
)

// Evidence is one observation that supports a reason or finding. Fields that do not apply are empty.
type Evidence struct {
	Metric string `json:"metric,omitempty"` // name of a metric, or of a probe's column
	Node   string `json:"node,omitempty"`   // node that was observed
	// Element names a part of the node, such as a core, device, thread or stream.
	Element string   `json:"element,omitempty"`
	Value   *float64 `json:"value,omitempty"` // in the metric's unit
	Low     *float64 `json:"low,omitempty"`   // bounds of the value's interval
	High    *float64 `json:"high,omitempty"`
	// Baseline is a reference for Value: the same metric when idle or without the tunnel, or the metric's
	// limit.
	Baseline *float64 `json:"baseline,omitempty"`
	Text     string   `json:"text,omitempty"`  // details that the text of the reason or finding lacks
	Trial    string   `json:"trial,omitempty"` // trial that was observed; "" if the evidence covers several
}

// Reason explains why a cell or trial is suspect. docs/reference/reasons.md lists the values of Kind.
type Reason struct {
	Kind  string     `json:"kind"`
	Text  string     `json:"text"`
	Trial string     `json:"trial,omitempty"`
	Facts []Evidence `json:"facts,omitempty"`
}

// Unchecked is a check that could not be made for a trial. It is therefore unknown whether the trial is
// suspect for the reason that the check gives.
type Unchecked struct {
	Kind string `json:"kind"` // kind of the reason that a failed check would give
	Text string `json:"text"` // why the check could not be made
}

// Finding is a named observation about a cell. docs/reference/reasons.md lists the values of Kind.
type Finding struct {
	Kind       string     `json:"kind"`
	Text       string     `json:"text"`
	Confidence float64    `json:"confidence,omitempty"`
	Words      []string   `json:"evidence,omitempty"` // texts of Facts
	Facts      []Evidence `json:"facts,omitempty"`
}

// NewFinding returns a finding that is based on facts.
func NewFinding(kind, text string, facts ...Evidence) Finding {
	f := Finding{Kind: kind, Text: text, Facts: facts}
	for _, e := range facts {
		if e.Text != "" {
			f.Words = append(f.Words, e.Text)
		}
	}
	return f
}
