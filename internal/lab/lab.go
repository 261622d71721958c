// Package lab brings up live testbeds and undoes them: nodes by role joined by links, an agent or a router's
// own command line on each, tunnels and settings that are put back. It measures nothing.
package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/journal"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
	"github.com/chokepoint-lab/chokepoint/internal/lab/tunnel"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Parts holds the controller sides of the registry, from which labs are made.
type Parts struct {
	Knobs   []knob.Knob
	Tunnels []tunnel.Tunnel
}

// Lab is a testbed that is up. One campaign uses it at a time; its methods are not safe for concurrent use,
// except Node.
type Lab struct {
	ID       string
	Kind     string // as in record.Run.Lab; ask a node, not the lab, what a node can do
	Topology record.Topology
	Note     string // what this kind of lab cannot do here, as a sentence
	Holder   int    // process whose descendants make up the lab, 0 if they are our own

	parts   Parts
	plan    addressPlan
	journal *journal.Journal // nil: no change outlives this process

	mu    sync.Mutex
	nodes map[string]*Node

	settings []*applied // in the order applied
	tunnels  map[string]*laid
	wanted   []string // keys of the tunnels last wanted; none for the plain path
	left     error    // what remains of tunnels that were given up
	clock    int      // dates the tunnels' last use
	dead     bool     // see PathDead

	supply
}

// supply holds what a kind of lab provides; all but dial are optional.
type supply struct {
	dial    func(ctx context.Context, node string) (*Node, error)
	down    func(ctx context.Context) error // ends what Up began
	network *network                        // nil: the lab's own, with the addresses of the plan
	carried bool                            // carried by a machine, the node HostNode
	dir     string                          // its directory on this machine, "" if none
	owned   bool                            // down also removes every change
	// regularly runs a function at intervals, until it fails or the lab goes down.
	regularly func(func(context.Context) error)
	// lead makes the nodes route a tunnel's slot separately from the plain path until the returned function
	// is called, if the network is not the lab's own. nil: routing needs no help, or there can be no tunnel.
	// It passes its routes to agentless, an end without an agent, or nil.
	lead func(ctx context.Context, slot int, agentless *agentlessEnd) (func(context.Context) error, error)
	// again finds the path between the ends, and the devices that face it, anew; nil: they are known.
	again func(ctx context.Context) error
	// leave ends what must be ended while the nodes can still be reached; nil: nothing.
	leave func(ctx context.Context) error
	// devices maps node and port to the device's name, where devices have names of their own.
	devices map[string]map[string]string

	// contact is the address of the data if that is merely the one at which the far end is reached and the
	// far end has others.
	contact netip.Addr
	// management names the devices by which the nodes themselves are reached, where known.
	management map[string]string

	// For nodes that are guests: how much longer than others they may take to return, facts about the machine
	// below them, what to report if one hangs, and how to keep the output of their consoles.
	patience time.Duration
	facts    func(ctx context.Context) map[string]string
	words    func(node string) string
	consoles func(dir string) error
}

func newLab(id, kind string, t record.Topology, parts Parts, j *journal.Journal) *Lab {
	return &Lab{
		ID:       id,
		Kind:     kind,
		Topology: t,
		parts:    parts,
		plan:     addressPlan{t},
		journal:  j,
		nodes:    map[string]*Node{},
		tunnels:  map[string]*laid{},
	}
}

// MachineFacts returns the facts of the machine under a lab's guests, without which their numbers cannot be
// compared with others'; none without guests.
func (l *Lab) MachineFacts(ctx context.Context) map[string]string {
	if l.facts == nil {
		return nil
	}
	return l.facts(ctx)
}

// A trial may take this much longer than its configured times, even if emulated guests on a busy machine are
// slow. A hanging guest is noticed long before.
const (
	UsualSlack = 20 * time.Second
	guestSlack = 60 * time.Second
)

// Slack bounds how much longer than its configured times a trial may take.
func (l *Lab) Slack() time.Duration {
	if l.patience > 0 {
		return guestSlack
	}
	return UsualSlack
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

// Nodes lists the lab's nodes, near to far, then the machine that carries them, if any.
func (l *Lab) Nodes() []string {
	var names []string
	for _, n := range l.Topology.Nodes {
		names = append(names, n.Name)
	}

	if l.carried {
		names = append(names, HostNode)
	}

	return names
}

// Close puts everything back: settings, tunnels, connections, and the lab itself if we own it. It continues
// after errors and joins them under ErrDirty; a change left in a lab that no longer exists is not an error.
func (l *Lab) Close(ctx context.Context) error {
	err := l.Reconcile(ctx, nil)
	if err != nil && !(l.owned && l.goneWithIt()) {
		fresh, _ := l.Reconnect(ctx)
		if fresh {
			err = l.Reconcile(ctx, nil)
		}
	}

	err = errors.Join(err, l.left)
	for key := range l.tunnels {
		err = errors.Join(err, l.lower(ctx, key))
	}

	if l.leave != nil {
		err = errors.Join(err, l.leave(ctx))
	}

	l.mu.Lock()
	for name, n := range l.nodes {
		if len(l.settings) == 0 { // otherwise it has something to undo
			err = errors.Join(err, n.dismiss(ctx, l.journal))
		}

		n.close()
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
		return dirtied("take down lab "+l.ID, err)
	}

	return nil
}

// ErrDirty means that something could not be put back. The error's text lists what is left; `lab restore`
// tries again.
var ErrDirty = errors.New("left dirty")

// dirtied names the operation that left something, and marks err as ErrDirty once, however deeply it is
// wrapped.
func dirtied(operation string, err error) error {
	if errors.Is(err, ErrDirty) {
		return fmt.Errorf("%s: %w", operation, err)
	}
	return fmt.Errorf("%s: %w: %w", operation, ErrDirty, err)
}

// NoTopology means that the available labs lack a topology, or cannot build it with such routers.
type NoTopology struct{ Topology, Reason string }

const noGuests = "its routers are not booted for the run, and so in no other way: lab vm boots them"

func (e *NoTopology) Error() string { return "topology " + e.Topology + ": " + e.Reason }

// Assemble makes a lab of existing nodes: it brings nothing up and takes nothing down, but puts settings and
// tunnels back at Close. Every node of the topology must be there, with an agent or with a driver and a host;
// the node HostNode is optional. If j is nil, nothing is journalled for restore.
func Assemble(id string, t record.Topology, nodes []*Node, parts Parts, j *journal.Journal) (*Lab, error) {
	l := newLab(id, "assembled", t, parts, j)
	l.carried = true
	for _, n := range nodes {
		if !n.HasAgent() && !n.HasDriver() {
			return nil, fmt.Errorf("assemble lab %s: node %s has neither an agent nor a driver and a host",
				id, n.Name)
		}

		l.nodes[n.Name] = n
	}

	for _, n := range t.Nodes {
		if l.nodes[n.Name] == nil {
			return nil, fmt.Errorf("assemble lab %s: topology %s wants node %s", id, t.Name, n.Name)
		}
	}

	l.dial = func(context.Context, string) (*Node, error) {
		return nil, fmt.Errorf("%w: no such node was given", host.ErrUnreachable)
	}
	return l, nil
}

// Ends returns the two nodes between which a tunnel of a kind would be laid in a slot (1 to Slots-1), with
// their addresses.
func (l *Lab) Ends(ctx context.Context, kind string, slot int) (near, far tunnel.End, err error) {
	x, err := l.planTunnel(ctx, TunnelSpec{Kind: kind}, slot)
	return x.ends[0], x.ends[1], err
}
