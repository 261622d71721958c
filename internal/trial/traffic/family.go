// Package traffic holds what activities that offer load or probe latency, each in a package below, have in
// common: their contracts, the controller that keeps the nodes in step, and the parts of a node side. It
// never computes a rate or a percentile; it passes on counts, times and series as they were seen.
package traffic

import (
	"context"
	"net/netip"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// End is one end of the path under test.
type End struct {
	Node   string
	Agent  host.Agent
	Addr   netip.Addr   // bind here
	Target netip.Addr   // the other end reaches this one here; differs from Addr behind a port forward
	Hears  netip.Addr   // what only is heard of datagrams where this end listens; invalid = all
	Beside []netip.Addr // addresses on the other paths; stream n takes path n-1 modulo their number
	Offset int64        // ns: the node's monotonic clock minus the controller's
	CPUs   []int        // allowed cores of the engine's processes; nil = all
	Next   *Neighbor    // nil = not ours to command
	// ThirdParty names the server of somebody else's that runs there, such as iperf3: Agent is nil then.
	ThirdParty string
}

// Neighbor is the device at the other end of an end's link, on a node that has an agent.
type Neighbor struct {
	Node   string
	Agent  host.Agent
	Device string
}

// Conductor keeps the ends of one trial in step.
type Conductor interface {
	// Ready says that both ends are connected and waiting. It returns the timeline, in the controller's
	// monotonic clock, once all engines of the trial are ready; Begin lies far enough ahead for messages to
	// arrive.
	Ready(ctx context.Context) (record.Window, error)
	// Progress reports what was received lately, for the live view; it may be called a few times per second
	// and never blocks.
	Progress(p Progress)
}

// Progress is a glimpse of a running load: of both ends by the controller's monotonic clock, or what one node
// says, by its own.
type Progress struct {
	At          int64   `json:"at_ns"`
	ReceivedBps float64 `json:"bps"`              // payload bits per second, all streams, both directions
	ReceivedPPS float64 `json:"pps,omitempty"`    // UDP only
	RTT         int64   `json:"rtt_ns,omitempty"` // latency probes only; 0 = nothing to say
}

// An Activity offers load or probes latency between two times of a trial.
type Activity interface {
	Name() string
	// Serve is the node side. It runs in a process of its own.
	Serve(ctx context.Context, s host.Session) error
}

// Engine is an activity that offers load between two ends.
type Engine interface {
	Activity
	// Check asks whether the engine can offer load between the ends; it may be called before they have
	// addresses.
	Check(ctx context.Context, near, far End, load record.Load) check.Answer
	// Offer runs the load to its end and joins what both ends saw. It returns with ctx's error soon after
	// ctx is cancelled, leaving no process. Times of the result are in the controller's clock.
	Offer(ctx context.Context, near, far End, load record.Load, c Conductor) (*record.Traffic, error)
}

// Asked is a load that doctor asks an engine for, and by which way of several it is to be offered. An engine
// that has a method Asked says them; others are asked for a stream of TCP.
type Asked struct {
	Way  string
	Load record.Load
}

// Prober is an activity that measures latency.
type Prober interface {
	Activity
	Probe(ctx context.Context, near, far End, load record.Load, c Conductor) (*record.Latency, error)
}
