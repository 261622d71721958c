package record

// LabImported is the kind of lab of a run that was not made here: its trials were measured by other programs.
const LabImported = "imported"

// Foreign says of a trial that another program measured it, and holds what that told beside traffic and
// latency.
type Foreign struct {
	Tool    string `json:"tool"` // iperf3, flent, irtt …
	Version string `json:"version,omitempty"`
	File    string `json:"file"` // its name
	// Lacks names what a trial of our own has and this one lacks.
	Lacks  []string           `json:"lacks"`
	Values map[string]float64 `json:"values,omitempty"` // metrics that the program computed itself
	Facts  map[string]string  `json:"facts,omitempty"`  // what it told of the test, by its own names
	Series *Table             `json:"series,omitempty"` // its series, by its own names and in its units
	Raw    []byte             `json:"raw,omitempty"`    // of flent what its file holds besides, without addresses
}
