// Package lab is a live testbed and its undoing: nodes by role joined by links, an agent or a router's own
// command line on each, tunnels and settings that are put back. It measures nothing.
package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/journal"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
	"github.com/chokepoint-lab/chokepoint/internal/lab/router"
	"github.com/chokepoint-lab/chokepoint/internal/lab/tunnel"
	"github.com/chokepoint-lab/chokepoint/internal/lab/vm"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// HostNode is the node that stands for the machine which carries the lab.
const HostNode = "host"

// Node is one machine of a lab. A router without room for an agent has none: it is driven by System through
// Host instead, and its resident probes are reported as unavailable.
type Node struct {
	Name   string
	Agent  host.Agent    // nil where the node is driven by commands
	Host   host.Host     // nil where the node has an agent
	System router.System // with Host
}

// Parts is what labs are made with: the controller halves of the registry.
type Parts struct {
	Knobs   []knob.Knob
	Tunnels []tunnel.Tunnel
}

// Lab is a testbed that is up. It is used by one campaign at a time; its methods are not safe for
// concurrent use, except Node.
type Lab struct {
	ID       string
	Kind     string // "local", …
	Topology record.Topology
	Guest    *vm.Guest // what the routers are where they are virtual machines
	Note     string    // what this kind of lab loses here, in words
	Holder   int       // process whose descendants are the lab, 0 if they are our own

	parts   Parts
	plan    addressPlan
	journal *journal.Journal // nil: nothing outlives us
	pair    *pairing         // of a lab of two machines, else nil

	mu    sync.Mutex
	nodes map[string]*Node
	dial  func(ctx context.Context, node string) (*Node, error)

	settings []*turned // in the order applied
	tunnels  map[string]*laid
	wanted   []string // keys of the tunnels that were wanted last; none for the plain path
	left     error    // what tunnels given up on have left
	clock    int      // ages the tunnels

	dir   string                          // what it keeps on this machine, "" if nothing
	owned bool                            // all that was changed goes with down
	down  func(ctx context.Context) error // ends what Up began
}

// Node returns a node by name, connecting to its agent at first use.
func (l *Lab) Node(ctx context.Context, name string) (*Node, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := l.nodes[name]; n != nil {
		return n, nil
	}
	n, err := l.dial(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("reach node %s of lab %s: %w", name, l.ID, err)
	}
	l.nodes[name] = n
	return n, nil
}

// KindOf names the kind of lab whose routers are such guests, as --lab does.
func KindOf(guest *vm.Guest) string {
	switch {
	case guest == nil:
		return "local"
	case guest.Image.Arch == vm.NativeArch():
		return "vm"
	}
	return "vm:" + guest.Image.Arch
}

// OwnKernel reports whether a node has a kernel, and cores, of its own.
func (l *Lab) OwnKernel(node string) bool {
	return l.Guest != nil && slices.ContainsFunc(l.Topology.Nodes,
		func(n record.TopoNode) bool { return n.Router && n.Name == node })
}

// Nodes names the lab's nodes, near to far, then the host, unless the lab is of two machines.
func (l *Lab) Nodes() []string {
	var names []string
	for _, n := range l.Topology.Nodes {
		names = append(names, n.Name)
	}
	if l.pair != nil {
		return names
	}
	return append(names, HostNode)
}

// Close puts everything back: settings, tunnels, connections, and the lab itself if we own it. It goes on
// after errors and joins them under ErrDirty; what was left in a lab that is gone is no error.
func (l *Lab) Close(ctx context.Context) error {
	err := l.Settle(ctx, nil)
	if err != nil && !(l.owned && l.goneWithIt()) {
		if fresh, _ := l.Mend(ctx); fresh {
			err = l.Settle(ctx, nil)
		}
	}
	err = errors.Join(err, l.left)
	for key := range l.tunnels {
		err = errors.Join(err, l.lower(ctx, key))
	}
	l.mu.Lock()
	for name, n := range l.nodes {
		if n.Agent != nil {
			n.Agent.Close()
		}
		delete(l.nodes, name)
	}
	l.mu.Unlock()
	if l.down != nil {
		downErr := l.down(ctx)
		if l.owned && downErr == nil && l.goneWithIt() {
			err = l.forget()
		}
		err = errors.Join(err, downErr)
	}
	if err != nil {
		return fmt.Errorf("take down lab %s: %w: %w", l.ID, ErrDirty, err)
	}
	return nil
}

// Address is the near (0) or far (1) node's address on the path of a slot.
func (l *Lab) Address(slot, end, ip int) netip.Addr { return l.plan.endAddress(slot, end, ip) }

// ForwardAddress is where the far side reaches the near node through a port forward: the address of the
// near side's router that faces the far side.
func (l *Lab) ForwardAddress(ip int) (netip.Addr, error) {
	if len(l.Topology.Routers) == 0 || l.Topology.Far == l.Topology.Routers[0] {
		return netip.Addr{}, fmt.Errorf("topology %s has no router to forward ports", l.Topology.Name)
	}
	i, e, ok := l.plan.linkOf(l.Topology.Routers[0], "wan")
	if !ok {
		return netip.Addr{}, fmt.Errorf("router %s has no port wan", l.Topology.Routers[0])
	}
	pair := l.plan.link(i, e)
	return family(pair[:], ip), nil
}

// Addresses lists each node's addresses on the plain path, IPv4 first.
func (l *Lab) Addresses() map[string][]netip.Addr {
	out := map[string][]netip.Addr{}
	for i, link := range l.Topology.Links {
		for e, end := range link.Ends {
			for _, a := range l.plan.link(i, e) {
				out[end.Node] = append(out[end.Node], a.Addr())
			}
		}
	}
	return out
}
