// Package traffic contains what the activities that offer load or probe latency have in common, each of which
// has a package below: their contracts, the controller that keeps the nodes in step, and the parts of a node
// side. It never computes a rate or a percentile; it passes on counts, times and series unchanged.
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
	Target netip.Addr   // address for the other end; differs from Addr behind a port forward
	Hears  netip.Addr   // only source of datagrams accepted if this end listens; invalid = any
	Beside []netip.Addr // addresses on the other paths; stream n takes path n-1 modulo their number
	Offset int64        // ns: the node's monotonic clock minus the controller's
	CPUs   []int        // allowed cores of the engine's processes; nil = all
	Next   *Neighbor    // nil = not under our control
	// ThirdParty names the third-party server that runs there, such as iperf3; Agent is nil then.
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
	// Ready reports that both ends are connected and waiting. It returns the timeline, in the controller's
	// monotonic clock, once all engines of the trial are ready; Begin is far enough ahead for messages to
	// arrive.
	Ready(ctx context.Context) (record.Window, error)
	// Progress reports recent receptions, for the live view; it may be called a few times per second, and
	// never blocks.
	Progress(p Progress)
}

// Progress is an intermediate state of a load: of both ends, by the controller's monotonic clock, or of one
// node, by the node's own.
type Progress struct {
	At          int64   `json:"at_ns"`
	ReceivedBps float64 `json:"bps"`              // payload bits per second, all streams, both directions
	ReceivedPPS float64 `json:"pps,omitempty"`    // UDP only
	RTT         int64   `json:"rtt_ns,omitempty"` // latency probes only; 0 = none
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
	// Check asks whether the engine can offer load between the ends; they may not have addresses yet.
	Check(ctx context.Context, near, far End, load record.Load) check.Answer
	// Offer runs the load to its end and joins the results of both ends. It returns with ctx's error soon
	// after ctx is cancelled, leaving no process. Times in the result are in the controller's clock.
	Offer(ctx context.Context, near, far End, load record.Load, c Conductor) (*record.Traffic, error)
}

// Asked is a load that doctor checks with an engine, and the mode in which to offer it. An engine with a
// method Asked lists them; others are checked with a TCP stream.
type Asked struct {
	Way  string
	Load record.Load
}

// Prober is an activity that measures latency.
type Prober interface {
	Activity
	Probe(ctx context.Context, near, far End, load record.Load, c Conductor) (*record.Latency, error)
}
