// Package lab brings up testbeds and takes them down: nodes connected by links, an agent or driver for each,
// and tunnels and settings, which are undone. It measures nothing.
package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/journal"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
	"github.com/chokepoint-lab/chokepoint/internal/lab/tunnel"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Parts lists the knobs and kinds of tunnels in the registry.
type Parts struct {
	Knobs   []knob.Knob
	Tunnels []tunnel.Tunnel
}

// Lab is a testbed that is up. Only one campaign may use it at a time. Only the method Node is safe for
// concurrent use.
type Lab struct {
	ID       string
	Kind     string // as in record.Run.Lab; ask a Node, not the lab, what it can do
	Topology record.Topology
	Note     string // sentence about what this lab cannot do
	Holder   int    // root process of the lab's process tree; 0 = this process

	parts   Parts
	plan    addressPlan
	journal *journal.Journal // nil = changes are not journalled

	mu    sync.Mutex
	nodes map[string]*Node

	settings []*applied // in order of application
	tunnels  map[string]*laid
	wanted   []string // keys of the tunnels requested last; empty for the plain path
	left     error    // errors from tunnels that were given up
	clock    int      // counts calls of Path, for tunnels' last use
	dead     bool     // set by PathDead

	supply
}

// supply is what a kind of lab provides. All fields but dial are optional.
type supply struct {
	dial    func(ctx context.Context, node string) (*Node, error)
	down    func(ctx context.Context) error // undoes what Up did
	network *network                        // nil = a network of the lab's own, with the plan's addresses
	carried bool                            // HostNode is a node of the lab
	dir     string                          // the lab's directory on this machine; "" = none
	owned   bool                            // down also undoes all settings in the lab
	// regularly calls a function at intervals until it fails or the lab is taken down.
	regularly func(func(context.Context) error)
	// lead adds routes so that data of a tunnel's slot uses the tunnel, if the network is not the lab's own.
	// The returned function removes them. Routes of a router without an agent are added to agentless. nil =
	// no routes are needed, or tunnels are impossible.
	lead func(ctx context.Context, slot int, agentless *agentlessEnd) (func(context.Context) error, error)
	// again discovers the path between the ends and its devices again; nil = not needed.
	again func(ctx context.Context) error
	// leave is called while nodes are still reachable.
	leave func(ctx context.Context) error
	// devices maps node and port to a device name, for nodes whose devices are not named like ports.
	devices map[string]map[string]string

	// contact is the destination address of data if it was chosen only because ssh reaches the far end there,
	// although the far end has other addresses.
	contact netip.Addr
	// management maps nodes to the devices by which they are reached, if known.
	management map[string]string

	// For labs with guests: the additional time for a guest to return, facts about the host, the end of a
	// node's console output, and a function that saves the consoles.
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

// MachineFacts returns facts about the machine that hosts the lab's guests, needed to compare their results
// with those on other machines. It returns nil without guests.
func (l *Lab) MachineFacts(ctx context.Context) map[string]string {
	if l.facts == nil {
		return nil
	}
	return l.facts(ctx)
}

// Additional time that a trial may take beyond its configured times, enough for slow emulated guests on a
// busy machine. Guests that hang are detected long before.
const (
	UsualSlack = 20 * time.Second
	guestSlack = 60 * time.Second
)

// Slack returns how much longer than its configured times a trial may take.
func (l *Lab) Slack() time.Duration {
	if l.patience > 0 {
		return guestSlack
	}
	return UsualSlack
}

// Node returns the node of that name. It connects to the node on first use.
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

// Nodes returns the names of all nodes, near to far, followed by HostNode if the lab has it.
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

// Close undoes settings, takes down tunnels, closes connections, and takes down the lab if we own it. It
// continues after errors and returns them joined as ErrDirty. Settings in a lab that no longer exists need no
// undoing.
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
		if len(l.settings) == 0 { // otherwise the guard still has settings to undo
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

// ErrDirty reports that something could not be undone. The error's text lists what remains; "lab restore"
// tries again.
var ErrDirty = errors.New("left dirty")

// dirtied adds the operation to err and marks it as ErrDirty, unless it is marked already.
func dirtied(operation string, err error) error {
	if errors.Is(err, ErrDirty) {
		return fmt.Errorf("%s: %w", operation, err)
	}
	return fmt.Errorf("%s: %w: %w", operation, ErrDirty, err)
}

// NoTopology is the error if the available labs do not have a topology, or cannot build it with the requested
// routers.
type NoTopology struct{ Topology, Reason string }

// noGuests refuses a size in a lab whose routers are not booted for the run.
func noGuests(topology string) error {
	why := "vcpus, memory and mitigations need a router that is booted for the run"
	return check.WithHint(&NoTopology{topology, why}, "take lab vm, which boots its routers")
}

func (e *NoTopology) Error() string { return "topology " + e.Topology + ": " + e.Reason }

// Assemble returns a lab of existing nodes. Close undoes settings and tunnels but does not take down the
// nodes. All nodes of the topology are required, with an agent or a driver and host; HostNode is optional. If
// j is nil, changes are not journalled.
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

// Ends returns the two ends that a tunnel of the given kind would have in a slot (1 to Slots-1), with their
// addresses.
func (l *Lab) Ends(ctx context.Context, kind string, slot int) (near, far tunnel.End, err error) {
	x, err := l.planTunnel(ctx, TunnelSpec{Kind: kind}, slot)
	return x.ends[0], x.ends[1], err
}
