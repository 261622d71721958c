package record

// Results holds the results of a run, so that a history of many runs need not read their trials.
type Results struct {
	ResultFacts
	Cells []CellResult `json:"-"`
}

// ResultFacts describes the device under test. "" means unknown.
type ResultFacts struct {
	Derivation int    `json:"derivation"` // version of the derivation; 0 means not derived
	Device     string `json:"device"`     // without firmware; the lab if the device is unknown
	Firmware   string `json:"firmware,omitempty"`
	Kernel     string `json:"kernel,omitempty"`
	// Series is the id of the series that the run belongs to, in which runs of two versions alternate.
	Series string `json:"series,omitempty"`
}

// CellResult holds the medians of a cell. The level of the factor firmware is kept apart, because a
// history compares firmwares.
type CellResult struct {
	Factors  Factors             `json:"factors"`
	Firmware string              `json:"firmware,omitempty"`
	Label    string              `json:"label"`
	Grade    string              `json:"grade"`
	Why      string              `json:"why,omitempty"`    // reason for the grade, or for a missing number
	Metric   string              `json:"metric,omitempty"` // main metric of the cell
	Metrics  map[string]Estimate `json:"metrics,omitempty"`
}

// Estimate is the median of n trials. Low and High are its confidence interval from six trials on,
// otherwise the range.
type Estimate struct {
	N      int     `json:"n"`
	Median float64 `json:"median"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
}
