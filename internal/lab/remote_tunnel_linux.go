package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

// crossing describes how data with an IP version crosses the router. It contains the routes of the client and
// the server to each other, the address of the server, and the routes of the router to both.
type crossing struct {
	near, far     kernel.Way
	target        netip.Addr
	toNear, toFar kernel.Way
}

// lead adds the server's address for a tunnel's slot, and routes on the server and the router. The routes of
// the client are part of the tunnel. The function that lead returns removes the address and the routes. If
// the router has no agent, lead adds the router's routes to the end in the argument agentless.
func (x *surveyed) lead(ctx context.Context, slot int, agentless *agentlessEnd) (
	leave func(context.Context) error, err error) {
	server := x.l.Topology.Far
	router := x.l.Topology.Routers[0]
	var there, between agent.Hold
	why := errors.New("the router's addresses are not known")
	for i, behind := range x.l.plan.behind(slot, 1) {
		inner := x.l.plan.tunnel(slot, 0)[i].Masked()
		c, ok := x.crossings[versionOf(behind.Addr())]
		if !ok {
			continue
		}

		if c.toFar.Via.IsValid() || c.far.Via.IsValid() && !slices.Contains(x.own[router].Own, c.far.Via) {
			why = fmt.Errorf("between router and server lies another router, which would not know the "+
				"addresses behind the tunnel: to %s", c.target)
			continue
		}

		there.Addresses = append(there.Addresses, agent.PortAddress{Port: c.far.Device, Address: behind})
		there.Routes = append(there.Routes, agent.Route{To: inner, Via: c.toFar.Source, Dev: c.far.Device})
		between.Routes = append(between.Routes, agent.Route{To: behind, Via: c.target, Dev: c.toFar.Device})
	}

	if len(there.Addresses) == 0 {
		return nil, fmt.Errorf("%w: %w", host.ErrUnsupported, why)
	}

	hold := map[string]agent.Hold{server: there, router: between}
	if agentless != nil {
		delete(hold, router)
		for _, r := range between.Routes {
			agentless.state.Behind[r.To] = r.Via
		}
	}

	var held []host.Session
	leave = func(ctx context.Context) (err error) {
		for _, s := range held {
			err = errors.Join(err, finish(ctx, s))
			s.Close()
		}
		return err
	}
	for node, what := range hold {
		n, err := x.l.Node(ctx, node)
		var s host.Session
		if err == nil {
			var a host.Agent
			if a, err = n.AgentFor("hold addresses behind a tunnel"); err == nil {
				s, err = a.Open(ctx, agent.VerbHold, what)
			}
		}

		if err == nil {
			held = append(held, s)
			err = host.Await(ctx, s, nil)
		}

		if err != nil {
			return nil, errors.Join(fmt.Errorf("lead the path behind a tunnel by %s: %w", node, err),
				leave(context.WithoutCancel(ctx)))
		}
	}

	return leave, nil
}
