package tunnel

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// All lists the kinds of tunnel in the order in which they are shown.
func All() []Tunnel {
	return slices.Concat([]Tunnel{WireGuard(), WireGuardKernel(), WireGuardUserspace()}, espKinds(),
		openVPNKinds())
}

// Defaults of a WireGuard tunnel: the MTU that wg-quick(8) takes on an Ethernet underlay of 1500 bytes,
// which fits IPv6 outside, and its port.
const (
	DefaultMTU    = 1420
	DefaultPort   = 51820
	DefaultDevice = "wg0"
)

// Names of the kinds.
const (
	nameAuto      = "wireguard"
	nameKernel    = "wireguard-kernel"
	nameUserspace = "wireguard-userspace"
)

// WireGuard takes the kernel's implementation on each end that has it, else the userspace one: the two
// speak one protocol.
func WireGuard() Tunnel { return auto{} }

// WireGuardKernel is the kernel's implementation.
func WireGuardKernel() Tunnel { return wireguard{nameKernel, openKernelDevice, probeKernelDevice} }

// WireGuardUserspace is golang.zx2c4.com/wireguard with the offloads of its TUN device and its socket. Its
// Serve wants a process of its own, so that its CPU time can be told apart.
func WireGuardUserspace() Tunnel {
	return wireguard{nameUserspace, openUserspaceDevice, probeUserspaceDevice}
}

// wireguard is one implementation: how a node opens a device, and how it finds out whether it could.
type wireguard struct {
	name  string
	open  func(r request) (device, error)
	probe func() check.Answer
}

func (w wireguard) Name() string { return w.name }

// Check asks both nodes.
func (w wireguard) Check(ctx context.Context, near, far End) check.Answer {
	return checkEnds(ctx, w.name, near, far)
}

func checkEnds(ctx context.Context, name string, near, far End) check.Answer {
	for _, e := range []End{near, far} {
		if a := probeEnd(ctx, name, e); a.State != check.Yes {
			return a
		}
	}
	return check.OK()
}

func probeEnd(ctx context.Context, name string, e End) check.Answer {
	var o offer
	err := e.Agent.Invoke(ctx, host.Verb(host.FamilyTunnel, name), request{Probe: true, Outer: e.Outer}, &o)
	switch {
	case errors.Is(err, host.ErrUnknownVerb), errors.Is(err, host.ErrUnsupported):
		return check.Not("%s: %v", e.Node, err)
	case err != nil:
		return check.CouldNotTell("%s: %v", e.Node, err)
	}
	if o.Answer.State != check.Yes && o.Answer.Reason != "" {
		o.Answer.Reason = e.Node + ": " + o.Answer.Reason
	}
	return o.Answer
}

// Up makes a device on each node, lets them exchange public keys through the controller, gives both a
// preshared key, and proves that packets cross in both directions.
func (w wireguard) Up(ctx context.Context, near, far End, s Spec) (Path, error) {
	return up(ctx, &path{spec: withDefaults(s), ends: [2]*end{{End: near, kind: w.name},
		{End: far, kind: w.name}}})
}

func up(ctx context.Context, p *path) (Path, error) {
	near, far := p.ends[0], p.ends[1]
	if err := plausible(near.End, far.End, p.spec); err != nil {
		return nil, fmt.Errorf("lay %s from %s to %s: %w", p.Implementation(), near.Node, far.Node, err)
	}
	if err := p.lay(ctx); err != nil {
		// What was laid must not outlive the caller's patience.
		return nil, errors.Join(fmt.Errorf("lay %s from %s to %s: %w", p.Implementation(), near.Node,
			far.Node, err),
			p.Down(context.WithoutCancel(ctx)))
	}
	return p, nil
}

func withDefaults(s Spec) Spec {
	if s.MTU == 0 {
		s.MTU = DefaultMTU
	}
	if s.Port == 0 {
		s.Port = DefaultPort
	}
	if s.Device == "" {
		s.Device = DefaultDevice
	}
	return s
}

// plausible refuses what would fail late or in silence.
func plausible(near, far End, s Spec) error {
	if near.Outer.Is4() != far.Outer.Is4() || !near.Outer.IsValid() {
		return fmt.Errorf("outer addresses %v and %v are not of one IP version", near.Outer, far.Outer)
	}
	if s.MTU < 576 || s.MTU > 65535-80 {
		return fmt.Errorf("mtu %d, want 576 to %d", s.MTU, 65535-80)
	}
	ends := []End{near, far}
	for i, e := range ends {
		other := ends[1-i]
		if len(e.Inner) == 0 {
			return fmt.Errorf("%s has no inner address", e.Node)
		}
		for _, r := range e.Routes {
			if r.Contains(other.Outer) {
				return fmt.Errorf("route %s of %s leads to %s's outer address into the tunnel itself", r,
					e.Node, other.Node)
			}
		}
		for _, p := range e.Inner {
			if p.Addr().Is6() && s.MTU < 1280 {
				return fmt.Errorf("mtu %d with IPv6 inside, which needs 1280 (RFC 8200)", s.MTU)
			}
		}
	}
	return nil
}

// auto chooses between the implementations.
type auto struct{}

func (auto) Name() string { return nameAuto }

func (auto) Check(ctx context.Context, near, far End) check.Answer {
	var why []string
	for _, e := range []End{near, far} {
		kernel := probeEnd(ctx, nameKernel, e)
		if kernel.State == check.Yes {
			continue
		}
		if a := probeEnd(ctx, nameUserspace, e); a.State != check.Yes {
			return a
		}
		why = append(why, kernel.Reason)
	}
	if len(why) == 0 {
		return check.OKBecause("kernel implementation")
	}
	return check.OKBecause("userspace implementation; not the kernel's, because %s", strings.Join(why, "; "))
}

func (auto) Up(ctx context.Context, near, far End, s Spec) (Path, error) {
	p := &path{spec: withDefaults(s)}
	for i, e := range []End{near, far} {
		p.ends[i] = &end{End: e, kind: nameUserspace}
		if probeEnd(ctx, nameKernel, e).State == check.Yes {
			p.ends[i].kind = nameKernel
		}
	}
	return up(ctx, p)
}

// Serve is for a node that is asked for either: it takes what it has. The controller half does not: it asks
// for one by name.
func (auto) Serve(ctx context.Context, s host.Session) error {
	kinds := []wireguard{
		{nameKernel, openKernelDevice, probeKernelDevice},
		{nameUserspace, openUserspaceDevice, probeUserspaceDevice},
	}
	i := max(0, slices.IndexFunc(kinds, func(w wireguard) bool { return w.probe().State == check.Yes }))
	return kinds[i].Serve(ctx, s)
}
