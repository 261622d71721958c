package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/isp"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
)

// provided is the service with which the server acts as the provider of the router. The service runs in a
// child process. This process undoes its changes when the agent is gone.
type provided struct {
	session host.Session
	ended   chan struct{}
	why     error // set before ended is closed
}

func (r *remote) provide(ctx context.Context, n *Node) error {
	m := r.Machines.Server
	a, err := n.AgentFor("play the router's provider")
	var s host.Session
	if err == nil {
		s, err = a.Open(ctx, knob.VerbServe, knob.Provider(m.ISP, m.ISPPort))
	}

	if err == nil {
		err = host.Await(ctx, s, nil)
	}

	if err != nil {
		return fmt.Errorf("have the server play the router's provider: %w", err)
	}

	p := &provided{session: s, ended: make(chan struct{})}
	r.provided = p
	r.keepers.Go(func() {
		defer close(p.ended)
		for p.why == nil {
			var e isp.Event
			p.why = s.Recv(&e)
		}
	})
	return nil
}

// endProviding ends the service, and waits until the server has undone its changes.
func (r *remote) endProviding(ctx context.Context) error {
	p := r.provided
	if p == nil {
		return nil
	}

	r.provided = nil
	defer context.AfterFunc(ctx, func() { p.session.Close() })()
	err := p.session.Finish()
	<-p.ended
	if err = errors.Join(err, leftBy(p.why)); err != nil {
		err = fmt.Errorf("end the router's provider on %s: %w", r.Machines.Server.ISPPort, err)
	}

	return errors.Join(err, p.session.Close())
}

// routerTime is the time limit for a router to bring up its WAN port. The router may have to boot, and it
// contacts the provider only at intervals.
const routerTime = 90 * time.Second

// awaitRouter waits until packets from the client pass the router and return from the server, which is the
// router's provider.
func (r *remote) awaitRouter(ctx context.Context, l *Lab) error {
	p := r.provided
	if p == nil {
		return nil
	}

	at := knob.Provider(r.Machines.Server.ISP, r.Machines.Server.ISPPort).Own()[0]
	ctx, cancel := context.WithTimeout(ctx, routerTime)
	defer cancel()
	for {
		err := r.returns(ctx, l, at)
		select {
		case <-p.ended:
			return fmt.Errorf("have the server play the router's provider: %w", p.why)
		default:
		}

		if err == nil {
			return nil
		}

		if host.Pause(ctx, time.Second) != nil {
			return check.WithHint(fmt.Errorf("wait until the router has its WAN by %s and passes packets on "+
				"from the client to %s: %w", r.Machines.Server.ISP, at, err), "plug its WAN port into "+
				r.Machines.Server.ISPPort+" of the server; the client's route to "+at.String()+
				" must lead to the router")
		}
	}
}

// returns checks whether a packet that the client sends to an address of the server comes back.
func (r *remote) returns(ctx context.Context, l *Lab, at netip.Addr) error {
	const size, tries = 100, 3
	var ends [2]host.Agent
	for i, node := range []string{l.Topology.Near, l.Topology.Far} {
		n, err := l.Node(ctx, node)
		if err != nil {
			return err
		}

		if ends[i], err = n.AgentFor("try the path"); err != nil {
			return err
		}
	}

	var f agent.Faced
	if err := ends[0].Invoke(ctx, agent.VerbFacing, agent.Facing{To: []netip.Addr{at}}, &f); err != nil {
		return err
	}

	if len(f.Ways) != 1 || !f.Ways[0].Source.IsValid() {
		return fmt.Errorf("the client has no route to %s", at)
	}

	port := r.firstPort() + 2
	tag := r.tag("provider")
	s, err := ends[1].Open(ctx, agent.VerbEcho, agent.EchoAt{Addr: at, Port: port, Tag: tag})
	if err != nil {
		return err
	}
	defer s.Close()
	if err := host.Await(ctx, s, nil); err != nil {
		return err
	}

	var got agent.Reached
	err = ends[0].Invoke(ctx, agent.VerbReach, agent.Reach{
		From:  f.Ways[0].Source,
		To:    at,
		Port:  port,
		Tag:   tag,
		Sizes: []int{size},
		Tries: tries,
	}, &got)
	if err == nil && len(got.Back) == 0 {
		err = errors.New(got.Note)
	}

	return errors.Join(err, finish(ctx, s))
}
