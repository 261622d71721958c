package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/lab/tunnel"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// laid holds a tunnel that is up, and its slot.
type laid struct {
	tunnel.Path
	slot   int
	used   int
	burden bool // whether the tunnel must be down while other paths are measured
	follow []Followed
	leave  func(context.Context) error // removes an end without an agent, and the routes added by supply.lead
}

// Path is a path between the near and the far node: the plain path (slot 0), a path through a tunnel, or a
// path through several tunnels in parallel.
type Path struct {
	Slot     int
	Tunnel   tunnel.Path // nil for the plain path
	Resolved string      // implementation of the tunnel, such as "none" or "wireguard-userspace"
	Beside   []Subpath   // further tunnels in parallel
	Settings []Followed  // settings that were applied to the devices of the tunnels
}

// Subpath is one of the parallel paths of a Path.
type Subpath struct {
	Slot   int
	Tunnel tunnel.Path // nil for the plain path
}

// Subpaths returns all parallel paths.
func (p Path) Subpaths() []Subpath { return append([]Subpath{{p.Slot, p.Tunnel}}, p.Beside...) }

// TunnelSpec describes the tunnels that a path uses.
type TunnelSpec struct {
	Kind  string // name of the kind, or "none"
	MTU   int    // inner MTU in bytes; 0 means the default of the kind
	Outer int    // outer IP version; 0 means 4
	Count int    // number of parallel tunnels; 0 means 1
	Queue int    // queue length of each end's TUN device in packets; 0 means the default of the kind
}

// key returns a key for one of several parallel tunnels.
func (s TunnelSpec) key(index int) string {
	return fmt.Sprintf("%s mtu %d over IPv%d, queue %d, %d", s.Kind, s.MTU, cmp.Or(s.Outer, 4), s.Queue,
		index)
}

// CheckTunnel reports whether the lab can set up a tunnel that s describes.
func (l *Lab) CheckTunnel(ctx context.Context, s TunnelSpec) check.Answer {
	if s.Kind == "none" {
		return check.OK()
	}

	x, err := l.planTunnel(ctx, s, 1)
	if err != nil {
		return check.Not("%v", err)
	}
	defer x.agentless.release(ctx) // only releases the agent, because nothing was set up
	a := x.kind.Check(ctx, x.ends[0], x.ends[1])
	if x.agentless != nil && a.State == check.No {
		a.Reason += l.byHand(x.agentless.n, s.Kind, 1)
	}

	return a
}

// Path returns the path described by s. It sets up the tunnels that are not up yet. It takes down tunnels
// that slow down other paths and do not belong to this path.
func (l *Lab) Path(ctx context.Context, s TunnelSpec) (p Path, err error) {
	l.wanted = nil
	follow := l.following()
	if s.Kind != "none" && s.Kind != "" {
		for i := range max(s.Count, 1) {
			l.wanted = append(l.wanted, s.key(i)+wordsOf(follow))
		}
	}

	if len(l.wanted) >= Slots {
		return p, fmt.Errorf("lay %d tunnels: at most %d stand side by side", s.Count, Slots-1)
	}

	for key, t := range l.tunnels {
		if t.burden && !slices.Contains(l.wanted, key) {
			if err := l.lower(ctx, key); err != nil {
				return p, err
			}
		}
	}

	p.Resolved = "none"
	l.clock++
	for i, key := range l.wanted {
		t, err := l.stand(ctx, key, s, follow)
		if err != nil {
			return p, fmt.Errorf("lay tunnel %s: %w", s.Kind, err)
		}

		p.Settings = append(p.Settings, t.follow...)
		if i > 0 {
			p.Beside = append(p.Beside, Subpath{t.slot, t.Path})
			continue
		}

		p.Slot = t.slot
		p.Tunnel = t.Path
		p.Resolved = s.Kind
		if i, ok := t.Path.(interface{ Implementation() string }); ok {
			p.Resolved = i.Implementation()
		}
	}

	return p, nil
}

// stand returns the tunnel with the given key. It sets up the tunnel if it is not up yet.
func (l *Lab) stand(ctx context.Context, key string, s TunnelSpec, follow []record.Setting) (*laid, error) {
	t := l.tunnels[key]
	if t == nil {
		var err error
		if t, err = l.lay(ctx, key, s); err != nil {
			return nil, err
		}

		if err = l.follow(ctx, t, follow); err != nil {
			return nil, errors.Join(err, l.lower(ctx, key))
		}
	}

	t.used = l.clock
	return t, nil
}

func (l *Lab) lay(ctx context.Context, key string, s TunnelSpec) (*laid, error) {
	slot, err := l.freeSlot(ctx)
	if err != nil {
		return nil, err
	}

	x, err := l.planTunnel(ctx, s, slot)
	if err != nil {
		return nil, err
	}

	unlead := func(context.Context) error { return nil }
	if l.lead != nil {
		if unlead, err = l.lead(ctx, slot, x.agentless); err != nil {
			return nil, errors.Join(err, x.agentless.release(ctx))
		}
	}

	leave := func(ctx context.Context) error { return errors.Join(x.agentless.release(ctx), unlead(ctx)) }
	if x.agentless != nil { // an answer may take long, so end the call with ctx
		defer context.AfterFunc(ctx, x.agentless.stop)()
	}

	p, err := x.kind.Up(ctx, x.ends[0], x.ends[1], tunnel.Spec{
		Device: slotDevice(slot),
		MTU:    s.MTU,
		Port:   slotPort(slot),
		Queue:  s.Queue,
	})
	if err != nil {
		if x.agentless != nil {
			err = check.WithHint(err, fmt.Sprintf("the firewall of %s must let in UDP port %d, and forward "+
				"what leaves the tunnel; IPv6 has rules of its own", x.agentless.n.Name, slotPort(slot)))
		}
		return nil, errors.Join(err, leave(context.WithoutCancel(ctx)))
	}

	t := &laid{Path: p, slot: slot, leave: leave}
	if b, ok := x.kind.(tunnel.Burden); ok {
		t.burden = b.Burdens()
	}

	l.tunnels[key] = t
	return t, nil
}

func slotDevice(slot int) string { return "tun" + strconv.Itoa(slot) }
func slotPort(slot int) int      { return tunnel.DefaultPort + slot }

// kept is the maximum number of tunnels that remain up for later paths. The number is limited because each
// end of a tunnel may be a process.
const kept = 4

// freeSlot returns a free slot. If the number of tunnels has reached kept, freeSlot takes down the least
// recently used tunnel that is not requested now.
func (l *Lab) freeSlot(ctx context.Context) (int, error) {
	used := map[int]bool{}
	oldest := ""
	for key, t := range l.tunnels {
		used[t.slot] = true
		if !slices.Contains(l.wanted, key) && (oldest == "" || t.used < l.tunnels[oldest].used) {
			oldest = key
		}
	}

	if oldest != "" && len(used) >= kept {
		slot := l.tunnels[oldest].slot
		return slot, l.lower(ctx, oldest)
	}

	for slot := 1; slot < Slots; slot++ {
		if !used[slot] {
			return slot, nil
		}
	}

	return 0, fmt.Errorf("all %d slots are taken", Slots-1)
}

func (l *Lab) lower(ctx context.Context, key string) error {
	t := l.tunnels[key]
	delete(l.tunnels, key)
	if err := errors.Join(t.Down(ctx), t.leave(ctx)); err != nil {
		return fmt.Errorf("take down tunnel %s: %w", key, err)
	}

	return nil
}

// plannedTunnel describes a tunnel to set up in a slot. If agentless is not nil, the caller must release it.
type plannedTunnel struct {
	kind      tunnel.Tunnel
	ends      [2]tunnel.End
	agentless *agentlessEnd
}

func (l *Lab) planTunnel(ctx context.Context, s TunnelSpec, slot int) (x plannedTunnel, err error) {
	i := slices.IndexFunc(l.parts.Tunnels, func(t tunnel.Tunnel) bool { return t.Name() == s.Kind })
	if i < 0 {
		return x, fmt.Errorf("no such tunnel: %s", s.Kind)
	}

	if !l.OwnNetwork() && l.lead == nil && l.journal != nil {
		return x, errors.New("between machines whose network is not the lab's own no tunnel is laid")
	}

	x.kind = l.parts.Tunnels[i]
	for e, name := range l.Topology.Tunnel {
		n, err := l.Node(ctx, name)
		if err != nil {
			return x, err
		}

		if n.Facts.Fixed != "" {
			return x, errors.New(n.Facts.Fixed)
		}

		end := tunnel.End{Node: name, Inner: l.plan.tunnel(slot, e)}
		end.Agent, err = n.AgentFor("hold a tunnel's end")
		if err != nil && x.agentless == nil {
			x.agentless = l.agentlessEnd(n, s.Kind, slot)
			end.Agentless = x.agentless != nil
		}

		if err != nil && !end.Agentless {
			return x, fmt.Errorf("%w%s", err, l.byHand(n, s.Kind, slot))
		}

		if end.Outer, err = l.outer(e, cmp.Or(s.Outer, 4)); err != nil {
			return x, err
		}

		if l.plan.hasBehind(1 - e) {
			end.Routes = l.plan.behind(slot, 1-e)
		}

		x.ends[e] = end
	}

	for e := range x.ends {
		if x.ends[e].Agentless {
			x.ends[e].Agent = x.agentless.hold(ctx)
		}
	}

	return x, nil
}

// AwaitReassembly waits until the fragments of earlier traffic have left the reassembly memory of the nodes.
// If a router drops some fragments, for example those of tunnel packets that exceed the MTU of the link, the
// memory fills with incomplete packets. Until these time out, the node loses all fragmented packets.
func (l *Lab) AwaitReassembly(ctx context.Context) error {
	end := time.Now().Add(fragmentTime)
	for _, node := range l.Topology.Nodes {
		n, err := l.Node(ctx, node.Name)
		if err != nil {
			return err
		}

		if n.Facts.OwnMachine() { // other programs share the reassembly memory of such a machine
			continue
		}

		for n.HasAgent() && time.Now().Before(end) {
			var used float64
			if err := n.Agent.Invoke(ctx, agent.VerbReassembly, struct{}{}, &used); err != nil {
				return fmt.Errorf("wait for memory for fragments on %s: %w", node.Name, err)
			}

			if used <= fragmentsLeft {
				break
			}

			time.Sleep(fragmentTime / 500)
		}
	}
	return nil
}

const (
	fragmentTime  = 65 * time.Second // longer than the kernel's timeout, which is 60 s for IPv6
	fragmentsLeft = 0.1              // share of the reassembly memory that may remain in use
)

// Ports returns the names of a node's ports.
func (l *Lab) Ports(node string) (ports []string) {
	for _, p := range l.Topology.Ports(node) {
		ports = append(ports, p.Port)
	}
	return ports
}
