// Package stream contains the built-in load generator for long TCP and UDP flows.
package stream

import (
	"context"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// Native is the built-in load generator: TCP and UDP with exact counts. On Linux, the node side uses
// features of the kernel. On other systems, ServePortable is the node side.
type Native struct{}

// Name returns "native".
func (Native) Name() string { return "native" }

// Check checks both nodes, unless the load is impossible regardless of the machine.
func (n Native) Check(ctx context.Context, near, far traffic.End, load record.Load) check.Answer {
	return traffic.CheckEnds(ctx, n.Name(), load, traffic.CheckLoad(load), near, far)
}

// Offer runs the load and joins the counts of both endpoints.
func (n Native) Offer(ctx context.Context, near, far traffic.End, load record.Load,
	c traffic.Conductor) (*record.Traffic, error) {
	t, _, err := traffic.Offer(ctx, n.Name(), near, far, load, c, traffic.CheckLoad(load))
	return t, err
}
