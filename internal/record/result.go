package record

// Results holds what a run found, so that a history of many runs need not read their trials.
type Results struct {
	ResultFacts
	Cells []CellResult `json:"-"`
}

// ResultFacts describes the device under test of a run, "" for what is unknown.
type ResultFacts struct {
	Derivation int    `json:"derivation"` // version of the derivation; 0: nothing is derived
	Device     string `json:"device"`     // without its firmware; the lab where no device is known
	Firmware   string `json:"firmware,omitempty"`
	Kernel     string `json:"kernel,omitempty"`
	// Series is the series of runs in turn that the run belongs to: the next run has another version.
	Series string `json:"series,omitempty"`
}

// CellResult holds the medians of a cell. The level of the factor firmware is apart from the other factors: a
// history compares firmwares.
type CellResult struct {
	Factors  Factors             `json:"factors"`
	Firmware string              `json:"firmware,omitempty"`
	Label    string              `json:"label"`
	Grade    string              `json:"grade"`
	Why      string              `json:"why,omitempty"`    // a reason to doubt it, or why it has no number
	Metric   string              `json:"metric,omitempty"` // by which the cell is known
	Metrics  map[string]Estimate `json:"metrics,omitempty"`
}

// Estimate holds a median of n trials, with its interval from six trials on, else their range.
type Estimate struct {
	N      int     `json:"n"`
	Median float64 `json:"median"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
}
