package record

import (
	"encoding/json"
	"time"
)

// States of a run. A run without an end record is in progress or, if its process has ended, was killed. The
// state "killed" is never stored.
const (
	RunRunning     = "running"
	RunKilled      = "killed"
	RunDone        = "done"
	RunInterrupted = "interrupted"
	RunFailed      = "failed"
)

// GuestSize holds the size of each virtual router in a lab. Zero values mean the lab's defaults.
type GuestSize struct {
	CPUs     int    `json:"cpus,omitempty"`
	MemoryMB int    `json:"memory_mb,omitempty"`
	Model    string `json:"cpu_model,omitempty"` // name of the CPU model in QEMU
	// Mitigations says how the router's kernel mitigates CPU vulnerabilities: "auto" or "off".
	Mitigations string `json:"mitigations,omitempty"`
}

// RunHead identifies a run.
type RunHead struct {
	ID         string    `json:"id"`
	Name       string    `json:"name,omitempty"`   // given by the user, unique in a store
	Device     string    `json:"device,omitempty"` // device under test, as named by the user or detected
	Notes      []string  `json:"notes,omitempty"`  // remarks by the user
	Started    time.Time `json:"started"`
	Ended      time.Time `json:"ended,omitzero"`
	Status     string    `json:"status"`
	Reason     string    `json:"reason,omitempty"`      // reason for an interruption or a failure
	Lab        string    `json:"lab"`                   // "local", …
	LabNote    string    `json:"lab_note,omitempty"`    // remarks about the lab
	Meter      *Meter    `json:"meter,omitempty"`       // external power meter
	Command    string    `json:"command"`               // exact command of the run, including the seed
	Version    string    `json:"version"`               // version of the program
	BinaryHash string    `json:"binary_hash,omitempty"` // SHA-256 of the executable, compared by resume
	// ImportedFrom lists the programs, with their versions, whose results were imported as this run.
	ImportedFrom []string `json:"imported_from,omitempty"`
}

// Limits on what a user may add to a run: the bytes of the device's name and of a note, and the number of
// notes.
const (
	MaxDevice = 100
	MaxNote   = 400
	MaxNotes  = 50
)

// Headline holds the result that is shown for a run in a list.
type Headline struct {
	Metric string  `json:"metric"`
	Value  float64 `json:"value"` // median of the cell, in the metric's unit
	Unit   string  `json:"unit"`
	Cell   string  `json:"cell"` // label of the cell
	Grade  string  `json:"grade"`
}

// Run holds the data of a campaign without its trials. It is stored before the first trial.
type Run struct {
	RunHead
	GuestSize    *GuestSize    `json:"guest_size,omitempty"` // size of the virtual routers, if given
	Image        *DiskImage    `json:"image,omitempty"`      // disk image given by the user for the routers
	OwnKernel    *OwnKernel    `json:"own_kernel,omitempty"` // kernel given by the user for the routers
	Queues       int           `json:"queues,omitempty"`     // queues per virtual link, if more than one
	Driver       string        `json:"driver,omitempty"`     // driver of the routers; "" means agents
	Peer         string        `json:"peer,omitempty"`       // the other machine, as given by the user
	Machines     *Machines     `json:"machines,omitempty"`   // the machines, for a lab of real machines
	Attached     string        `json:"attached,omitempty"`   // id of a lab that "lab up" started, or ""
	Kernel       string        `json:"kernel"`               // kernel of the machine that runs the lab
	Design       Design        `json:"design"`
	Topologies   []Topology    `json:"topologies"`
	Nodes        []NodeFacts   `json:"nodes,omitempty"` // properties of each node, see Run.Node
	Environments []Environment `json:"environments"`
	Ceilings     []Ceiling     `json:"ceilings"`          // rates of the tester alone
	Skipped      []Skipped     `json:"skipped,omitempty"` // cells skipped because of the lab, with reasons
	Caveats      []Caveat      `json:"caveats,omitempty"`
	Imports      []Import      `json:"imports,omitempty"` // a later import of a node replaces earlier ones
	// ImportedAt is the time at which another program's results were imported as this run. Started and Ended
	// are then the times of the measurement, if the files contain them.
	ImportedAt  time.Time `json:"imported,omitzero"`
	Experiments []string  `json:"experiments,omitempty"` // ids of runs that test findings of this run
	Series      *Series   `json:"series,omitempty"`      // alternating series that includes the run
}

// Series says where a run is in a series that measures versions of the router alternately. Blocks are
// numbered from 1. Each block contains a run of each compared version, or one run of a search for a version.
type Series struct {
	ID      string `json:"id"`
	Version string `json:"version"`
	Block   int    `json:"block"`
	Digest  string `json:"digest,omitempty"` // SHA-256 of all versions and the lab, compared by resume
}

// Import holds the recordings of a node to which the run had no access. They are added to the run later.
type Import struct {
	Node string `json:"node"`
	File string `json:"file"` // name of the file
	// Offset is the difference between the node's clock and the controller's, with an error of at most
	// ±Bound. Match is the correlation between the bytes that the node counted and the run's traffic. It is
	// at most 1.
	Offset  int64     `json:"offset_ns"`
	Bound   int64     `json:"bound_ns"`
	Match   float64   `json:"match"`
	Samples []Samples `json:"samples"` // series with times of the controller's clock
	Log     []LogLine `json:"log,omitempty"`
}

// DiskImage describes the user's disk image for the routers of a lab, and how to log in to it. It contains
// only the paths of files, because their contents are never recorded.
type DiskImage struct {
	File     string `json:"file"`
	Login    string `json:"login,omitempty"`    // METHOD:USER; "" means ssh:root
	Key      string `json:"key,omitempty"`      // file with a private key
	Password string `json:"password,omitempty"` // file with a password
	UEFI     bool   `json:"uefi,omitempty"`
}

// OwnKernel describes the user's kernel for the routers of a lab. It is a package of the distribution, or a
// file and the directory of its modules ("" if the kernel needs none).
type OwnKernel struct {
	Package string `json:"package,omitempty"`
	File    string `json:"file,omitempty"`
	Modules string `json:"modules,omitempty"`
}

// Event is an event of a run, as printed by run --json.
type Event struct {
	Time time.Time `json:"time"`
	// Event is the kind: run-started, trial-started, phase, rate, trial-ended, warning, run-ended …
	Event  string        `json:"event"`
	Run    string        `json:"run,omitempty"`
	Row    string        `json:"row,omitempty"`
	Cell   Factors       `json:"factors,omitempty"`
	Phase  string        `json:"phase,omitempty"`
	Text   string        `json:"text,omitempty"`
	Index  int           `json:"index,omitempty"` // index of the row
	Total  int           `json:"total,omitempty"`
	Rate   float64       `json:"rate_bps,omitempty"`
	PPS    float64       `json:"rate_pps,omitempty"`
	RTT    int64         `json:"rtt_ns,omitempty"`
	Cores  []float64     `json:"cores,omitempty"` // busy share of each core of the node host, 0 to 1
	Left   time.Duration `json:"left_ns,omitempty"`
	Status string        `json:"status,omitempty"`
	// Cause is the cause that limits the ended trial, diagnosed from that trial alone.
	Cause      string  `json:"cause,omitempty"`
	Confidence float64 `json:"confidence,omitempty"` // confidence of Cause
	// Data is a design. With run-started, it is the design of the plan. With phase "plan", it is the design
	// of the run, if the lab has changed it.
	Data json.RawMessage `json:"data,omitempty"`
}
