package labtest

import (
	"context"
	"fmt"

	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/probe"
	"github.com/chokepoint-lab/chokepoint/internal/trial/watch"
)

// Serve starts an agent in this process and returns the controller's side. When the controller
// disconnects, the agent undoes its changes and ends.
func Serve(handlers map[string]host.Handler) host.Agent {
	return host.Inside(context.Background(), handlers)
}

// handlers returns the verbs of a node: the agent's real handlers for knobs, and fakes of the verbs that
// need a kernel.
func (f *Lab) handlers(node string) map[string]host.Handler {
	h := agent.Handlers(agent.ChildRole, agent.Parts{Knobs: f.knobs(node)})
	h[agent.VerbCounters] = host.Answering(func(_ context.Context, devices []string) (
		map[string]kernel.LinkCounters, error) {
		return f.counters(node, devices)
	})
	h[agent.VerbEcho] = Tunnel{}.Serve // keeps the session open, as the real echo does
	h[agent.VerbReach] = host.Answering(func(_ context.Context, r agent.Reach) (agent.Reached, error) {
		return f.reach(node, r), nil
	})
	h[agent.VerbReassembly] = host.Answering(func(context.Context, struct{}) (float64, error) {
		return f.reassembly(node), nil
	})
	h[host.Verb(host.FamilyTunnel, Tunnel{}.Name())] = Tunnel{}.Serve
	engine := f.Engine
	engine.wire = f.Wire
	h[host.Verb(host.FamilyTraffic, engine.Name())] = engine.Serve
	list := f.Probes
	if list == nil {
		list = Probes()
	}

	h[watch.Verb] = watch.Serve(list)
	h[probe.VerbEnvironment] = probe.ServeEnvironment(probe.Root{})
	return h
}

func (f *Lab) reassembly(node string) (used float64) {
	if node == "router" && len(f.Fragments) > 0 {
		used = f.Fragments[0]
		f.Fragments = f.Fragments[1:]
	}
	return used
}

func (f *Lab) counters(node string, devices []string) (map[string]kernel.LinkCounters, error) {
	out := map[string]kernel.LinkCounters{}
	for _, d := range devices {
		c, ok := f.Wire.read(node, d)
		if !ok {
			return nil, fmt.Errorf("read counters of %s: no such device", d)
		}

		out[d] = c
	}
	return out, nil
}

func (f *Lab) reach(node string, r agent.Reach) (out agent.Reached) {
	mtu := f.Wire.PathMTU(r.To)
	header := 28
	if r.To.Is6() {
		header = 48
	}

	for _, size := range append(r.Sizes, r.Beyond) {
		if size > mtu || size < header {
			out.Note = "message too long"
			continue
		}

		bytes := uint64(size - header)
		up := node == f.Wire.topology.Near
		f.Wire.Carry(up, r.To, 1, bytes)
		f.Wire.Carry(!up, r.To, 1, bytes)
		out.Back = append(out.Back, size)
		out.Bytes += int64(bytes)
	}

	return out
}
