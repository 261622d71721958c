package record

// LabImported is the kind of lab in a run whose trials other programs measured.
const LabImported = "imported"

// Foreign holds what another program reported about the trial that it measured, in addition to traffic and
// latency. A trial measured by chokepoint has no Foreign.
type Foreign struct {
	Tool    string `json:"tool"` // name of the program: iperf3, flent, irtt …
	Version string `json:"version,omitempty"`
	File    string `json:"file"` // name of the imported file
	// Lacks lists the items that this trial lacks compared with a trial measured by chokepoint.
	Lacks  []string           `json:"lacks"`
	Values map[string]float64 `json:"values,omitempty"` // metrics computed by the program
	Facts  map[string]string  `json:"facts,omitempty"`  // facts about the test, as the program names them
	Series *Table             `json:"series,omitempty"` // series, with the program's names and units
	Raw    []byte             `json:"raw,omitempty"`    // for flent: the rest of the file, without addresses
}
