package lab

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/lab/tunnel"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// laid is a tunnel that is up, in its slot.
type laid struct {
	tunnel.Path
	slot int
	used int
}

// Path is a way between the near and the far node: the plain one (slot 0)
// or one through a tunnel.
type Path struct {
	Slot     int
	Tunnel   tunnel.Path // nil on the plain path
	Resolved string      // the tunnel's implementation: "none", "wireguard-userspace", …
}

// TunnelSpec is what identifies a tunnel among those that are up.
type TunnelSpec struct {
	Kind string // a tunnel's name, or "none"
	MTU  int    // inner; 0 = the kind's default
}

// CheckTunnel asks whether the lab can lay such a tunnel.
func (l *Lab) CheckTunnel(ctx context.Context, s TunnelSpec) check.Answer {
	if s.Kind == "none" {
		return check.OK()
	}
	t, near, far, err := l.tunnelEnds(ctx, s, 1)
	if err != nil {
		return check.Not("%v", err)
	}
	return t.Check(ctx, near, far)
}

// Path returns the way that a row wants, laying its tunnel unless it is up.
func (l *Lab) Path(ctx context.Context, s TunnelSpec) (Path, error) {
	l.last = ""
	if s.Kind == "none" || s.Kind == "" {
		return Path{Resolved: "none"}, nil
	}
	l.clock++
	key := s.Kind + " " + strconv.Itoa(s.MTU)
	t := l.tunnels[key]
	if t == nil {
		var err error
		if t, err = l.lay(ctx, key, s); err != nil {
			return Path{}, fmt.Errorf("lay tunnel %s: %w", s.Kind, err)
		}
	}
	t.used, l.last = l.clock, key
	p := Path{Slot: t.slot, Tunnel: t.Path, Resolved: s.Kind}
	if i, ok := t.Path.(interface{ Implementation() string }); ok {
		p.Resolved = i.Implementation()
	}
	return p, nil
}

func (l *Lab) lay(ctx context.Context, key string, s TunnelSpec) (*laid, error) {
	slot, err := l.freeSlot(ctx)
	if err != nil {
		return nil, err
	}
	kind, near, far, err := l.tunnelEnds(ctx, s, slot)
	if err != nil {
		return nil, err
	}
	p, err := kind.Up(ctx, near, far, tunnel.Spec{Device: "tun" + strconv.Itoa(slot), MTU: s.MTU, Port: 51820 + slot})
	if err != nil {
		return nil, err
	}
	t := &laid{Path: p, slot: slot}
	l.tunnels[key] = t
	return t, nil
}

// freeSlot finds a slot, taking down the tunnel that was not used for
// longest if there is none.
func (l *Lab) freeSlot(ctx context.Context) (int, error) {
	used := map[int]bool{}
	oldest := ""
	for key, t := range l.tunnels {
		used[t.slot] = true
		if oldest == "" || t.used < l.tunnels[oldest].used {
			oldest = key
		}
	}
	for slot := 1; slot < Slots; slot++ {
		if !used[slot] {
			return slot, nil
		}
	}
	slot := l.tunnels[oldest].slot
	return slot, l.lower(ctx, oldest)
}

func (l *Lab) lower(ctx context.Context, key string) error {
	t := l.tunnels[key]
	delete(l.tunnels, key)
	if err := t.Down(ctx); err != nil {
		return fmt.Errorf("take down tunnel %s: %w", key, err)
	}
	return nil
}

func (l *Lab) tunnelEnds(ctx context.Context, s TunnelSpec, slot int) (t tunnel.Tunnel, near, far tunnel.End, err error) {
	i := slices.IndexFunc(l.parts.Tunnels, func(t tunnel.Tunnel) bool { return t.Name() == s.Kind })
	if i < 0 {
		return nil, near, far, fmt.Errorf("no such tunnel: %s", s.Kind)
	}
	ends := [2]tunnel.End{}
	for e, name := range l.Topology.Tunnel {
		n, err := l.Node(ctx, name)
		if err != nil {
			return nil, near, far, err
		}
		if n.Agent == nil {
			return nil, near, far, fmt.Errorf("node %s has no agent to hold a tunnel's end", name)
		}
		ends[e] = tunnel.End{Node: name, Agent: n.Agent, Outer: l.plan.outer(e, 4), Inner: l.plan.tunnel(slot, e)}
		if l.plan.hasBehind(1 - e) {
			ends[e].Routes = l.plan.behind(slot, 1-e)
		}
	}
	return l.parts.Tunnels[i], ends[0], ends[1], nil
}

// Counters reads the counters of a node's devices.
func (l *Lab) Counters(ctx context.Context, node string, devices ...string) (map[string]kernel.LinkCounters, error) {
	n, err := l.Node(ctx, node)
	if err != nil {
		return nil, err
	}
	if n.Agent == nil {
		return nil, fmt.Errorf("read counters of %s: the node has no agent", node)
	}
	var out map[string]kernel.LinkCounters
	err = n.Agent.Invoke(ctx, agent.VerbCounters, devices, &out)
	return out, err
}

// Ports lists the devices of a node that the lab's links end on.
func (l *Lab) Ports(node string) []string {
	return l.placeOf(record.Setting{Node: node}).Ports
}
