// Package stream is the built-in load generator: long TCP and UDP flows with exact accounts.
package stream

import (
	"context"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// Native is the built-in load generator: TCP and UDP with exact accounting. On Linux its node side uses the
// kernel's facilities; elsewhere it is ServePortable.
type Native struct{}

// Name is "native".
func (Native) Name() string { return "native" }

// Check asks both nodes. For a load that is impossible anywhere it answers without them.
func (n Native) Check(ctx context.Context, near, far traffic.End, load record.Load) check.Answer {
	return traffic.CheckEnds(ctx, n.Name(), load, traffic.CheckLoad(load), near, far)
}

// Offer runs the load and joins the counts of both ends.
func (n Native) Offer(ctx context.Context, near, far traffic.End, load record.Load,
	c traffic.Conductor) (*record.Traffic, error) {
	t, _, err := traffic.Offer(ctx, n.Name(), near, far, load, c, traffic.CheckLoad(load))
	return t, err
}
