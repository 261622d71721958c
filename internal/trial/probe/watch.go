package probe

import (
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Verbs of the family, and the interval of each pace unless asked otherwise.
var (
	VerbWatch       = host.Verb(host.FamilyProbe, "watch")
	VerbEnvironment = host.Verb(host.FamilyProbe, "environment")
)

const (
	defaultFastNs = 100e6
	defaultSlowNs = 1e9
)

// WatchRequest opens a watch: the node samples from then on until the session ends. Zero intervals mean 10
// Hz and 1 Hz.
type WatchRequest struct {
	Probes []string `json:"probes"`
	FastNs int64    `json:"fast_ns,omitempty"`
	SlowNs int64    `json:"slow_ns,omitempty"`
	// Own are processes of the node's machine that, with all that descends from them, belong to the lab:
	// what "foreign" leaves out.
	Own []int `json:"own,omitempty"`
	// Trace tells that tracepoints of the node's machine may be switched on for as long as the watch lasts:
	// it is the lab's alone, and bears it.
	Trace bool `json:"trace,omitempty"`
}

func (r WatchRequest) withDefaults() WatchRequest {
	if r.FastNs <= 0 {
		r.FastNs = defaultFastNs
	}
	if r.SlowNs <= 0 {
		r.SlowNs = defaultSlowNs
	}
	return r
}

// command is what the controller says in a watch; its times are the node's.
type command struct {
	Op      string  `json:"op"`
	ID      int     `json:"id,omitempty"`       // of a collect, repeated in its answers
	At      []int64 `json:"at,omitempty"`       // schedule
	EveryNs int64   `json:"every_ns,omitempty"` // live; 0 = no more
	From    int64   `json:"from,omitempty"`     // collect
	To      int64   `json:"to,omitempty"`
}

const (
	opSchedule = "schedule"
	opLive     = "live"
	opCollect  = "collect"
)

// answer is what the node says in a watch: that it is resident, each core's load, or a part of a
// collection. A collection is one answer per probe, so that no frame grows large, and a last one with the
// rest.
type answer struct {
	Ready   bool             `json:"ready,omitempty"`
	Live    []float64        `json:"live,omitempty"`
	ID      int              `json:"id,omitempty"`
	Samples *record.Samples  `json:"samples,omitempty"`
	Rest    *record.NodeData `json:"rest,omitempty"`
}

// Handlers are the node halves of the family, by verb.
func Handlers(root Root) map[string]host.Handler {
	return map[string]host.Handler{
		VerbWatch:       Serve(All(root), root),
		VerbEnvironment: ServeEnvironment(root),
	}
}
