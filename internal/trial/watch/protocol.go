// Package watch keeps a node's probes running while traffic flows: one resident loop on the node reads every
// source when it is due and holds what it saw; the controller names the window's edges and fetches the rest
// afterwards. It draws no conclusion.
package watch

import (
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/probe"
)

// Verb opens a watch.
var Verb = host.Verb(host.FamilyProbe, "watch")

// The interval of each pace unless asked otherwise.
const (
	defaultFastNs = 100e6
	defaultSlowNs = 1e9
)

// Request opens a watch: the node samples from then on until the session ends. Zero intervals mean 10
// Hz and 1 Hz.
type Request struct {
	Probes []string `json:"probes"`
	FastNs int64    `json:"fast_ns,omitempty"`
	SlowNs int64    `json:"slow_ns,omitempty"`
	probe.Options
}

func (r Request) withDefaults() Request {
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
func Handlers(root probe.Root) map[string]host.Handler {
	return map[string]host.Handler{
		Verb:                  Serve(probe.All(root)),
		probe.VerbEnvironment: probe.ServeEnvironment(root),
	}
}
