// Package stream is the built-in load generator: long TCP and UDP flows with exact accounts.
package stream

import (
	"context"
	"fmt"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// Native is the built-in load generator: TCP and UDP with exact accounting. Its node half needs Linux.
type Native struct{}

// Name is "native".
func (Native) Name() string { return "native" }

// Check asks both nodes; a load that is impossible anywhere is answered without them.
func (n Native) Check(ctx context.Context, near, far traffic.End, load record.Load) check.Answer {
	if a := traffic.CheckLoad(load); a.State != check.Yes {
		return a
	}
	return traffic.CheckNodes(ctx, host.Verb(host.FamilyTraffic, n.Name()), near, far, load)
}

// Offer runs the load and joins what both ends counted.
func (n Native) Offer(ctx context.Context, near, far traffic.End, load record.Load,
	c traffic.Conductor) (*record.Traffic,
	error) {
	if a := traffic.CheckLoad(load); a.State != check.Yes {
		return nil, fmt.Errorf("offer %s load: %s", load.Protocol, a.Reason)
	}
	raw, err := traffic.ConductBoth(ctx, host.Verb(host.FamilyTraffic, n.Name()), near, far, load, c)
	if err != nil {
		return nil, err
	}
	var reports [2]traffic.EndReport
	for i, end := range []traffic.End{near, far} {
		if reports[i], err = traffic.ReadEndReport(raw[i]); err != nil {
			return nil, fmt.Errorf("read the result of %s: %w", end.Node, err)
		}
		reports[i].Shift(-end.Offset)
		reports[i].Usage.Node = end.Node
	}
	return traffic.JoinNative(load, reports)
}
