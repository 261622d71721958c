// Package stream is the built-in load generator: long TCP and UDP flows with exact accounts.
package stream

import (
	"context"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// Native is the built-in load generator: TCP and UDP with exact accounting. Its node half needs Linux.
type Native struct{ traffic.Pair }

// Name is "native".
func (Native) Name() string { return "native" }

// Check asks both nodes; a load that is impossible anywhere is answered without them.
func (n Native) Check(ctx context.Context, near, far traffic.End, load record.Load) check.Answer {
	return traffic.CheckEnds(ctx, n.Name(), load, traffic.CheckLoad(load), near, far)
}

// Offer runs the load and joins what both ends counted.
func (n Native) Offer(ctx context.Context, near, far traffic.End, load record.Load,
	c traffic.Conductor) (*record.Traffic, error) {
	t, _, err := traffic.Offer(ctx, n.Name(), near, far, load, c, traffic.CheckLoad(load))
	return t, err
}

// Serve is the node half of the native engine.
func (Native) Serve(ctx context.Context, s host.Session) error {
	return traffic.Serve(ctx, s, traffic.CheckFlows, traffic.Halves(connect))
}

func connect(ctx context.Context, l *traffic.Half, listening func(port int) error) error {
	traffic.MakeRoom(min(len(l.Keys), traffic.OwnThreads) + 4)
	l.Flows = make([]traffic.Flow, len(l.Keys))
	if l.Request.Load.Protocol == "udp" {
		return connectUDP(ctx, l, listening)
	}
	return connectTCP(ctx, l, listening)
}
