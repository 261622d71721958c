package frames

import (
	"context"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/trial/probe/bpf"
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
		w, err := surveyDevice(hop, q.Load)
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
	g, err := shakeHands(ctx, l.Request, l.Keys, listening)
	if err != nil {
		return err
	}
	l.EndSetup, l.Release = g.stop, g.close
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
