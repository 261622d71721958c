package record

// LabImported is the kind of lab of a run whose trials other programs measured.
const LabImported = "imported"

// Foreign marks a trial that another program measured. It holds what that program reported in addition to
// traffic and latency.
type Foreign struct {
	Tool    string `json:"tool"` // iperf3, flent, irtt …
	Version string `json:"version,omitempty"`
	File    string `json:"file"` // name of the imported file
	// Lacks lists what this trial lacks compared with one of chokepoint.
	Lacks  []string           `json:"lacks"`
	Values map[string]float64 `json:"values,omitempty"` // metrics computed by the program
	Facts  map[string]string  `json:"facts,omitempty"`  // facts about the test, with the program's names
	Series *Table             `json:"series,omitempty"` // series with the program's names and units
	Raw    []byte             `json:"raw,omitempty"`    // for flent: the rest of its file, without addresses
}
