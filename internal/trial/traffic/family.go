// Package traffic contains what activities have in common. An activity offers load or measures latency, and
// has its own subpackage. This package declares the interfaces of activities. It implements their controller
// side, which synchronises the nodes, and parts of their node side. The package does not compute rates or
// percentiles. It returns counts, times and series unchanged.
package traffic

import (
	"context"
	"net/netip"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// End describes an endpoint of the path under test.
type End struct {
	Node   string
	Agent  host.Agent
	Addr   netip.Addr   // local address
	Target netip.Addr   // address to which the other end connects; differs from Addr with a port forward
	Hears  netip.Addr   // the only source from which a listener accepts datagrams; invalid means any
	Beside []netip.Addr // addresses on further paths; stream n uses path (n-1) modulo the number of paths
	Offset int64        // node's monotonic clock minus the controller's, in ns
	CPUs   []int        // cores for the engine's processes; nil means all
	Next   *Neighbor    // nil if the device is not under our control
	// ThirdParty is the name of a third party's server on this end, such as iperf3. Agent is then nil.
	ThirdParty string
}

// LoopbackEnd returns an endpoint on the loopback device of an agent's node. If the clocks cannot be related,
// it also returns an error, and the offset is 0.
func LoopbackEnd(ctx context.Context, node string, agent host.Agent) (End, error) {
	at := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	offset, _, err := agent.Clock(ctx)
	return End{Node: node, Agent: agent, Addr: at, Target: at, Offset: offset}, err
}

// Neighbor describes the device at the other end of the endpoint's link. The device is on a node with an
// agent.
type Neighbor struct {
	Node   string
	Agent  host.Agent
	Device string
}

// Conductor synchronises the activities of one trial.
type Conductor interface {
	// Ready is called when both ends are connected. It waits until all activities of the trial are ready and
	// returns the timeline, in the time of the controller's monotonic clock. The timeline begins far enough
	// in the future for messages to arrive before it.
	Ready(ctx context.Context) (record.Window, error)
	// Progress reports data received recently, for the live view. It may be called a few times per second,
	// and never blocks.
	Progress(p Progress)
}

// Progress describes the current state of a load. It covers both ends, with times of the controller's
// monotonic clock, or one node, with times of the node's clock.
type Progress struct {
	At          int64   `json:"at_ns"`
	ReceivedBps float64 `json:"bps"`              // payload bit/s over all streams and directions
	ReceivedPPS float64 `json:"pps,omitempty"`    // packets per second, UDP only
	RTT         int64   `json:"rtt_ns,omitempty"` // round-trip time in ns, latency probes only; 0 means none
}

// Activity offers load or measures latency during a trial.
type Activity interface {
	Name() string
	// Serve is the node side of the activity. It runs in its own process.
	Serve(ctx context.Context, s host.Session) error
}

// Engine is an activity that offers load between two endpoints.
type Engine interface {
	Activity
	// Check checks whether the engine can offer a load between the endpoints. The endpoints need not have
	// addresses yet.
	Check(ctx context.Context, near, far End, load record.Load) check.Answer
	// Offer runs the load and joins the results of both endpoints. If ctx is cancelled, Offer soon returns
	// ctx's error and leaves no process behind. Times in the result are those of the controller's clock.
	Offer(ctx context.Context, near, far End, load record.Load, c Conductor) (*record.Traffic, error)
}

// Plain implements Check and Offer for an engine E that embeds it. The node side of E must use Endpoints on
// both nodes.
type Plain[E interface {
	Name() string
	// CheckLoad checks the requirements of a load that are the same on every machine.
	CheckLoad(record.Load) check.Answer
}] struct{}

// Check checks the load, then both nodes.
func (Plain[E]) Check(ctx context.Context, near, far End, load record.Load) check.Answer {
	var e E
	return CheckEnds(ctx, e.Name(), load, e.CheckLoad(load), near, far)
}

// Offer runs the load and joins the counts of both endpoints.
func (Plain[E]) Offer(ctx context.Context, near, far End, load record.Load,
	c Conductor) (*record.Traffic, error) {
	var e E
	t, _, err := Offer(ctx, e.Name(), near, far, load, c, e.CheckLoad(load))
	return t, err
}

// Asked describes a load that doctor checks with an engine, and the mode in which to offer it. An engine
// may have a method Asked that lists such loads. Other engines are checked with a TCP stream.
type Asked struct {
	Way  string
	Load record.Load
}

// Prober is an activity that measures latency.
type Prober interface {
	Activity
	Probe(ctx context.Context, near, far End, load record.Load, c Conductor) (*record.Latency, error)
}
