package record

import (
	"encoding/json"
	"time"
)

// Run states. A run without an end record is running or, if its program is gone, killed; the latter is never
// stored.
const (
	RunRunning     = "running"
	RunKilled      = "killed"
	RunDone        = "done"
	RunInterrupted = "interrupted"
	RunFailed      = "failed"
)

// GuestSize is the size of each virtual router of a lab; zero values are the lab's defaults.
type GuestSize struct {
	CPUs     int    `json:"cpus,omitempty"`
	MemoryMB int    `json:"memory_mb,omitempty"`
	Model    string `json:"cpu_model,omitempty"` // in QEMU's words
	// CPU vulnerability mitigations of its kernel: "auto" or "off"
	Mitigations string `json:"mitigations,omitempty"`
}

// RunHead identifies a run.
type RunHead struct {
	ID         string    `json:"id"`
	Name       string    `json:"name,omitempty"`   // that a person gave it, unique in a store
	Device     string    `json:"device,omitempty"` // under test, in a person's words or by its fingerprint
	Notes      []string  `json:"notes,omitempty"`  // of whoever made the run
	Started    time.Time `json:"started"`
	Ended      time.Time `json:"ended,omitzero"`
	Status     string    `json:"status"`
	Reason     string    `json:"reason,omitempty"`      // for an interruption or failure
	Lab        string    `json:"lab"`                   // "local", …
	LabNote    string    `json:"lab_note,omitempty"`    // e.g. what is unavailable to an ordinary user
	Meter      *Meter    `json:"meter,omitempty"`       // external power meter
	Command    string    `json:"command"`               // the exact command that made it, seed included
	Version    string    `json:"version"`               // of the program
	BinaryHash string    `json:"binary_hash,omitempty"` // sha256 of the executable, for resume
	// ImportedFrom lists the programs, with versions, whose results were imported as this run.
	ImportedFrom []string `json:"imported_from,omitempty"`
}

// Bounds of what a person says of a run: the bytes of the device's name and of a note, and the notes.
const (
	MaxDevice = 100
	MaxNote   = 400
	MaxNotes  = 50
)

// Headline is the one number that a list shows of a run.
type Headline struct {
	Metric string  `json:"metric"`
	Value  float64 `json:"value"` // the cell's median, in the metric's unit
	Unit   string  `json:"unit"`
	Cell   string  `json:"cell"` // label of the cell that has it
	Grade  string  `json:"grade"`
}

// Run is a campaign without its trials, stored before the first of them.
type Run struct {
	RunHead
	GuestSize    *GuestSize    `json:"guest_size,omitempty"` // size of the virtual routers, if given
	Image        *DiskImage    `json:"image,omitempty"`      // of the routers, given by the user
	OwnKernel    *OwnKernel    `json:"own_kernel,omitempty"` // of the routers, given by the user
	Queues       int           `json:"queues,omitempty"`     // queues of each virtual link, if more than one
	Driver       string        `json:"driver,omitempty"`     // driver of the routers, "" = agents
	Peer         string        `json:"peer,omitempty"`       // the other machine, as typed
	Machines     *Machines     `json:"machines,omitempty"`   // of a lab of real machines
	Attached     string        `json:"attached,omitempty"`   // lab of lab up that it used, "" = its own
	Kernel       string        `json:"kernel"`               // kernel of the machine that carries the lab
	Design       Design        `json:"design"`
	Topologies   []Topology    `json:"topologies"`
	Nodes        []NodeFacts   `json:"nodes,omitempty"` // properties of each node, see Run.Node
	Environments []Environment `json:"environments"`
	Ceilings     []Ceiling     `json:"ceilings"`          // of the tester alone
	Skipped      []Skipped     `json:"skipped,omitempty"` // by the lab, with reasons
	Caveats      []Caveat      `json:"caveats,omitempty"`
	Imports      []Import      `json:"imports,omitempty"` // the last one of a node counts
	// ImportedAt is when another program's results were imported as this run; Started and Ended are those of
	// the measurement, if its files have them.
	ImportedAt  time.Time `json:"imported,omitzero"`
	Experiments []string  `json:"experiments,omitempty"` // runs that test its findings
	Series      *Series   `json:"series,omitempty"`      // of runs in turn that it belongs to
}

// Series is the place of a run among the runs that measure two versions of the router in turn. Blocks from 1
// hold one run of each version.
type Series struct {
	ID      string `json:"id"`
	Version string `json:"version"`
	Block   int    `json:"block"`
}

// Import holds what a node recorded by itself during the run, which did not reach it; it was added to the
// run afterwards.
type Import struct {
	Node string `json:"node"`
	File string `json:"file"` // its name
	// Offset is the node's clock minus the controller's, within ±Bound. Match is the correlation between the
	// bytes that the node counted and the run's traffic, at most 1.
	Offset  int64     `json:"offset_ns"`
	Bound   int64     `json:"bound_ns"`
	Match   float64   `json:"match"`
	Samples []Samples `json:"samples"` // times: the controller's clock
	Log     []LogLine `json:"log,omitempty"`
}

// DiskImage is a user's disk image that the routers of a lab boot, and how to log in to it. It holds paths
// only; the contents of the files are never recorded.
type DiskImage struct {
	File     string `json:"file"`
	Login    string `json:"login,omitempty"`    // METHOD:USER, "" = ssh:root
	Key      string `json:"key,omitempty"`      // file of a private key
	Password string `json:"password,omitempty"` // file
	UEFI     bool   `json:"uefi,omitempty"`
}

// OwnKernel is the kernel that a user chose for the routers of a lab: a package of the distribution, or a
// file and the folder of its modules, "" if it needs none.
type OwnKernel struct {
	Package string `json:"package,omitempty"`
	File    string `json:"file,omitempty"`
	Modules string `json:"modules,omitempty"`
}

// Event is one step of a run, as printed by run --json.
type Event struct {
	Time time.Time `json:"time"`
	// run-started, trial-started, phase, rate, trial-ended, warning, run-ended …
	Event  string        `json:"event"`
	Run    string        `json:"run,omitempty"`
	Row    string        `json:"row,omitempty"`
	Cell   Factors       `json:"factors,omitempty"`
	Phase  string        `json:"phase,omitempty"`
	Text   string        `json:"text,omitempty"`
	Index  int           `json:"index,omitempty"` // row index
	Total  int           `json:"total,omitempty"`
	Rate   float64       `json:"rate_bps,omitempty"`
	PPS    float64       `json:"rate_pps,omitempty"`
	RTT    int64         `json:"rtt_ns,omitempty"`
	Cores  []float64     `json:"cores,omitempty"` // busy share per core of node host, 0…1
	Left   time.Duration `json:"left_ns,omitempty"`
	Status string        `json:"status,omitempty"`
	// Cause names the limit of the trial that ended, judged from that trial alone.
	Cause      string  `json:"cause,omitempty"`
	Confidence float64 `json:"confidence,omitempty"` // of Cause
	// Data is the design: with run-started the plan's, and with the phase "plan" the run's, if the lab has
	// changed it.
	Data json.RawMessage `json:"data,omitempty"`
}
