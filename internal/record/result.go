package record

// Results holds the results of a run. With them, a history of many runs can be shown without reading the
// trials.
type Results struct {
	ResultFacts
	Cells []CellResult `json:"cells"`
}

// ResultFacts describes the device under test. A field is "" if it is unknown.
type ResultFacts struct {
	Derivation int    `json:"derivation"` // version of the code that derived the facts; 0 means not derived
	Device     string `json:"device"`     // name without firmware; the lab if unknown
	Firmware   string `json:"firmware,omitempty"`
	Kernel     string `json:"kernel,omitempty"`
	// Series is the id of the series that the run belongs to. The runs of a series measure two versions
	// alternately.
	Series string `json:"series,omitempty"`
}

// CellResult holds the medians of a cell. The level of the firmware factor is in a separate field, because a
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

// Estimate holds the median of n trials. With at least six trials, Low and High are the bounds of its
// confidence interval. Otherwise, they are the minimum and the maximum.
type Estimate struct {
	N      int     `json:"n"`
	Median float64 `json:"median"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
}
