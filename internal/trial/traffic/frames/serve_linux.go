package frames

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/probe/bpf"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// Serve is the node half of the xdp engine: that of an end, or of the device that an end's frames enter.
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
	return traffic.ServeRequest(ctx, s, q, checkXDP, traffic.Halves(connect))
}

func connect(ctx context.Context, l *traffic.Half, listening func(port int) error) error {
	traffic.MakeRoom(4)
	g, err := shakeHands(ctx, l, listening)
	if err != nil {
		return err
	}
	p, err := newXDPPort(l, g)
	if err == nil {
		l.Finish = p.finish
	}
	return err
}

// keepReady lets a device of this node take frames from the other end of its link until the session ends.
// Only virtual links need that.
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

// bootID names the clock of this machine: it is another after each boot.
func bootID() string {
	b, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b))
}

// pinThread keeps the calling thread on one core: frames of one flow that were sent on two could overtake
// each other.
func pinThread(core int) error {
	if core < 0 {
		return nil // not known
	}
	var set unix.CPUSet
	set.Set(core)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("pin the sender to core %d: %w", core, err)
	}
	return nil
}

// handshake is what both ends of a load do before frames flow: by ordinary sockets, which keep the flows'
// ports for as long as the load lasts, each flow is shown to the listener as it arrives there, behind any
// translation of addresses, and every device on the path learns its neighbours.
type handshake struct {
	local, remote []netip.AddrPort // of each flow, as this end sees it
	sockets       []int            // by which it said hello: the listener has one for all
}

func shakeHands(ctx context.Context, l *traffic.Half, listening func(port int) error) (*handshake, error) {
	n := len(l.Keys)
	h := &handshake{make([]netip.AddrPort, n), make([]netip.AddrPort, n), make([]int, n)}
	var opened []int
	l.Release = func() {
		for _, fd := range opened {
			unix.Close(fd)
		}
	}
	if !l.Request.Listen {
		return h, traffic.OpenFlows(ctx, l.Request, l.Keys, func(flow, fd int, at, to netip.AddrPort) error {
			opened = append(opened, fd)
			h.local[flow], h.remote[flow], h.sockets[flow] = at, to, fd
			return nil
		})
	}
	shared := map[*net.UDPConn]int{}
	server, err := traffic.AnswerHellos(ctx, l.Request, n, listening,
		func(flow int, from netip.AddrPort, at *net.UDPConn) (*net.UDPConn, error) {
			fd, known := shared[at]
			if !known {
				var err error
				if fd, err = traffic.TakeOver(at, false); err != nil {
					return nil, err
				}
				shared[at] = fd
				opened = append(opened, fd)
			}
			h.local[flow], h.remote[flow] = at.LocalAddr().(*net.UDPAddr).AddrPort(), from
			h.sockets[flow] = fd
			return nil, nil
		})
	l.EndSetup = server.Close
	return h, err
}
