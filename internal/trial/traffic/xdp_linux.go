//go:build !mips && !mipsle

package traffic

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/probe/bpf"
)

// Serve is the node half of the xdp engine: that of an end, or of the device
// that an end's frames enter.
func (XDP) Serve(ctx context.Context, s host.Session) error {
	var q request
	if err := s.Recv(&q); err != nil {
		return err
	}
	switch {
	case q.Check:
		return s.Send(checkXDP(q))
	case q.Neighbor != "":
		return keepReady(s, q.Neighbor)
	}
	if err := pinProcess(q.CPUs); err != nil {
		return err
	}
	keys := flowsOf(q.Load)
	makeRoom(4)
	g, err := greetFlows(ctx, q, keys, func(port int) error { return s.Send(message{Listening: port}) })
	if err != nil {
		return err
	}
	l := &lanes{request: q, keys: keys, details: map[string]string{}, quiet: g.quiet}
	defer g.close()
	defer l.close()
	p, err := newXDPPort(l, g)
	if err != nil {
		return err
	}
	if err := s.Send(message{Ready: true}); err != nil {
		return err
	}
	var w record.Window
	if err := s.Recv(&w); err != nil {
		return err
	}
	report, err := l.run(ctx, w, func(g glimpse) error { return s.Send(message{Glimpse: &g}) })
	if err != nil {
		return err
	}
	if err := p.finish(report); err != nil {
		return err
	}
	flows := report.Flows
	report.Flows = nil
	if err := sendResult(s, report); err != nil {
		return err
	}
	for i := range flows {
		if err := sendResult(s, &flows[i]); err != nil {
			return err
		}
	}
	return nil
}

// checkXDP answers for this node: a yes with a reason is one for sendmmsg.
func checkXDP(q request) check.Answer {
	live, err := bpf.Probe()
	switch {
	case errors.Is(err, unix.EPERM):
		return check.Not("it may not load BPF programs").Hinted("run as root: a user's own namespace does not give this right")
	case errors.Is(err, bpf.ErrUnsupported):
		return check.Not("%v", err)
	case err != nil:
		return check.CouldNotTell("%v", err)
	case live != nil:
		return check.OKBecause("%v", live)
	case !q.Peer.IsValid():
		return check.OK()
	}
	hop, err := kernel.NextHop(q.Peer)
	if err != nil {
		return check.CouldNotTell("%v", err)
	}
	if len(hop.Source) != 6 {
		return check.OKBecause("device %s, of kind %q, carries no Ethernet frames", hop.Device, hop.Kind)
	}
	// Many cards lose their link for seconds when a program is attached, and
	// with it whatever else goes that way, such as the control connection.
	if !slices.Contains([]string{"veth", "tun", "tuntap"}, hop.Kind) {
		return check.OKBecause("device %s, of kind %q, is no virtual link", hop.Device, hop.Kind)
	}
	f, err := bpf.Pass(hop.Index)
	if err != nil {
		return check.OKBecause("device %s, of kind %q, takes no frames: %v", hop.Device, hop.Kind, err)
	}
	f.Close()
	return check.OK()
}

// keepReady lets a device of this node take frames from the other end of its
// link until the session ends. Only virtual links need that.
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
	if err := s.Send(message{Ready: true}); err != nil {
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

// pinThread keeps the calling thread on one core: frames of one flow that
// were sent on two could overtake each other.
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
