// Package traffic contains what activities have in common, which offer load or measure latency:
// interfaces, the controller side, which synchronises the nodes, and parts of the node side. Each activity
// is a subpackage. The package never computes rates or percentiles. It passes on counts, times and series
// unchanged.
package traffic

import (
	"context"
	"net/netip"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// End is an endpoint of the path under test.
type End struct {
	Node   string
	Agent  host.Agent
	Addr   netip.Addr   // local address
	Target netip.Addr   // address for the other end; differs from Addr with a port forward
	Hears  netip.Addr   // as listener: the only source of datagrams; invalid means any
	Beside []netip.Addr // addresses on further paths; stream n uses path (n-1) modulo the number of paths
	Offset int64        // node's monotonic clock minus the controller's, in ns
	CPUs   []int        // cores for the engine's processes; nil means all
	Next   *Neighbor    // nil if not under our control
	// ThirdParty is the name of the third-party server on this end, such as iperf3. Agent is then nil.
	ThirdParty string
}

// Neighbor is the device at the other end of the endpoint's link, on a node with an agent.
type Neighbor struct {
	Node   string
	Agent  host.Agent
	Device string
}

// Conductor synchronises the activities of one trial.
type Conductor interface {
	// Ready is called when both ends are connected. Once all activities of the trial are ready, it returns
	// the timeline, by the controller's monotonic clock. Begin is far enough ahead for messages to arrive.
	Ready(ctx context.Context) (record.Window, error)
	// Progress reports recently received data, for the live view. It may be called a few times per second,
	// and never blocks.
	Progress(p Progress)
}

// Progress is the current state of a load: of both ends, by the controller's monotonic clock, or of one
// node, by its own clock.
type Progress struct {
	At          int64   `json:"at_ns"`
	ReceivedBps float64 `json:"bps"`              // payload bit/s over all streams and directions
	ReceivedPPS float64 `json:"pps,omitempty"`    // UDP only
	RTT         int64   `json:"rtt_ns,omitempty"` // latency probes only; 0 means none
}

// Activity offers load or measures latency during a trial.
type Activity interface {
	Name() string
	// Serve is the node side. It runs in its own process.
	Serve(ctx context.Context, s host.Session) error
}

// Engine is an activity that offers load between two endpoints.
type Engine interface {
	Activity
	// Check checks whether the engine can offer a load between the endpoints, which need not have addresses
	// yet.
	Check(ctx context.Context, near, far End, load record.Load) check.Answer
	// Offer runs the load and joins the results of both endpoints. If ctx is cancelled, it returns ctx's
	// error soon, and leaves no process behind. Times in the result are by the controller's clock.
	Offer(ctx context.Context, near, far End, load record.Load, c Conductor) (*record.Traffic, error)
}

// Asked is a load that doctor checks with an engine, and the mode to offer it in. An engine with a method
// Asked lists them. Others are checked with a TCP stream.
type Asked struct {
	Way  string
	Load record.Load
}

// Prober is an activity that measures latency.
type Prober interface {
	Activity
	Probe(ctx context.Context, near, far End, load record.Load, c Conductor) (*record.Latency, error)
}
