package frames

import (
	"context"
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/probe/bpf"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// Serve is the node side of engine xdp. The node is an endpoint, or has the device that an endpoint's
// frames enter.
func (XDP) Serve(ctx context.Context, s host.Session) error {
	var q traffic.Request
	if err := s.Recv(&q); err != nil {
		return err
	}

	switch {
	case q.Survey:
		hop, err := kernel.NextHop(q.Peer)
		if err != nil {
			return err
		}

		w, err := surveyDevice(hop)
		if err != nil {
			return err
		}

		return s.Send(w)
	case q.Neighbor != "":
		return keepReady(s, q.Neighbor)
	}

	return traffic.ServeRequest(ctx, s, q, checkXDP, traffic.Endpoints(connect))
}

func connect(ctx context.Context, l *traffic.Endpoint) error {
	traffic.MakeRoom(4)
	p := newXDPPort(l)
	if err := shakeHands(ctx, l); err != nil {
		return err
	}

	return p.start(l)
}

// keepReady makes a device accept frames from the other end of its link until the session ends. Only veth
// devices need it.
func keepReady(s host.Session, device string) error {
	index, kind, err := kernel.Identity(device)
	if err != nil {
		return err
	}

	if kind == "veth" {
		f, err := bpf.Pass(index)
		if err != nil {
			return err
		}
		defer f.Close()
	}

	if err := s.Send(traffic.Message{Ready: true}); err != nil {
		return err
	}

	for s.Recv(nil) == nil {
	}

	return nil
}

// pinThread restricts the calling thread to one core, because frames of a flow that are sent on two cores
// could overtake each other.
func pinThread(core int) error {
	if core < 0 {
		return nil // the core is unknown
	}

	var set unix.CPUSet
	set.Set(core)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("pin the sender to core %d: %w", core, err)
	}

	return nil
}

// shakeHands announces each flow to the listener, which thereby learns the flow's address behind any NAT.
// It uses ordinary sockets. They reserve the flows' ports during the load, and make every device on the
// path learn the addresses of its neighbours.
func shakeHands(ctx context.Context, l *traffic.Endpoint) error {
	if !l.Request.Listen {
		return traffic.OpenFlows(ctx, l.Request, l.Keys, func(i, fd int, at, to netip.AddrPort) error {
			f := l.Flows[i].(*xdpFlow)
			f.socket = &traffic.Socket{FD: fd}
			f.local = at
			f.remote = to
			return nil
		})
	}

	shared := traffic.SharedSockets{}
	h, err := traffic.AnswerHellos(ctx, l.Part, len(l.Keys),
		func(i int, from netip.AddrPort, at *net.UDPConn) (_ *net.UDPConn, err error) {
			f := l.Flows[i].(*xdpFlow)
			f.local = at.LocalAddr().(*net.UDPAddr).AddrPort()
			f.remote = from
			f.socket, err = shared.Of(at)
			return nil, err
		})
	l.EndSetup = h.Close
	return err
}
