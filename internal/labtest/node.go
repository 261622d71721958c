package labtest

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/trial/probe"
	"github.com/chokepoint-lab/chokepoint/internal/trial/watch"
)

// Serve runs an agent in this process and returns the controller's end. The agent ends, having undone
// everything, when the controller hangs up.
func Serve(handlers map[string]host.Handler) host.Agent {
	near, far := net.Pipe()
	s := &served{ended: make(chan error, 1)}
	go func() { s.ended <- host.Serve(context.Background(), far, handlers) }()
	s.Agent = host.Connect(near)
	return s
}

// served waits at Close until the agent has undone what it did.
type served struct {
	host.Agent
	ended chan error
}

func (s *served) Close() error {
	err := errors.Join(s.Agent.Close(), <-s.ended)
	s.ended <- nil // for a second Close
	return err
}

// handlers are the verbs of a node on a wire: the agent's own for knobs, and fakes of what needs a kernel.
func (f *Lab) handlers(node string) map[string]host.Handler {
	h := agent.Handlers(agent.ChildRole, agent.Parts{Knobs: f.knobs(node)})
	h[agent.VerbCounters] = f.tellCounters(node)
	h[agent.VerbEcho] = func(_ context.Context, s host.Session) error {
		var at agent.EchoAt
		if err := s.Recv(&at); err != nil {
			return err
		}
		if err := s.Send(struct{}{}); err != nil {
			return err
		}
		for s.Recv(nil) == nil {
		}
		return nil
	}
	h[agent.VerbReach] = f.reach(node)
	h[agent.VerbReassembly] = f.tellReassembly(node)
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

func (f *Lab) tellReassembly(node string) host.Handler {
	return func(_ context.Context, s host.Session) error {
		if err := s.Recv(nil); err != nil {
			return err
		}
		if node != "router" || len(f.Fragments) == 0 {
			return s.Send(0.0)
		}
		used := f.Fragments[0]
		f.Fragments = f.Fragments[1:]
		return s.Send(used)
	}
}

func (f *Lab) tellCounters(node string) host.Handler {
	return func(_ context.Context, s host.Session) error {
		var devices []string
		if err := s.Recv(&devices); err != nil {
			return err
		}
		out := map[string]kernel.LinkCounters{}
		for _, d := range devices {
			c, ok := f.Wire.read(node, d)
			if !ok {
				return fmt.Errorf("read counters of %s: no such device", d)
			}
			out[d] = c
		}
		return s.Send(out)
	}
}

func (f *Lab) reach(node string) host.Handler {
	return func(_ context.Context, s host.Session) error {
		var r agent.Reach
		if err := s.Recv(&r); err != nil {
			return err
		}
		mtu := f.Wire.PathMTU(r.To)
		var out agent.Reached
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
		return s.Send(out)
	}
}
