package record

// LabImported is the kind of lab of a run that was not made here: other programs measured its trials.
const LabImported = "imported"

// Foreign marks a trial that another program measured, and holds what that program reported beside traffic
// and latency.
type Foreign struct {
	Tool    string `json:"tool"` // iperf3, flent, irtt …
	Version string `json:"version,omitempty"`
	File    string `json:"file"` // its name
	// Lacks names what this trial lacks compared with one of chokepoint.
	Lacks  []string           `json:"lacks"`
	Values map[string]float64 `json:"values,omitempty"` // metrics that the program computed itself
	Facts  map[string]string  `json:"facts,omitempty"`  // what it reported about the test, by its own names
	Series *Table             `json:"series,omitempty"` // its series, by its own names and in its units
	Raw    []byte             `json:"raw,omitempty"`    // for flent, the rest of its file, without addresses
}
