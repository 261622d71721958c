// Package lab brings up testbeds and takes them down. A testbed consists of nodes, the links between them, an
// agent or driver for each node, tunnels, and settings, which are undone at the end. The package measures
// nothing.
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

// Parts holds the knobs and kinds of tunnels from the registry.
type Parts struct {
	Knobs   []knob.Knob
	Tunnels []tunnel.Tunnel
}

// Lab is a testbed that is up. Only one campaign may use it at a time. No method except Node is safe for
// concurrent use.
type Lab struct {
	ID       string
	Kind     string // as in record.Run.Lab; it does not determine what a node supports (see Node)
	Topology record.Topology
	Note     string // sentence that says what this lab cannot do
	Holder   int    // root of the lab's process tree; 0 means this process

	parts   Parts
	plan    addressPlan
	journal *journal.Journal // if nil, changes are not journalled

	mu    sync.Mutex
	nodes map[string]*Node

	settings []*applied // settings in effect, in the order in which they were applied
	tunnels  map[string]*laid
	wanted   []string // keys of the tunnels that were last requested; empty for the plain path
	left     error    // errors of tunnels that were abandoned
	clock    int      // counts calls of Path, in order to record when a tunnel was last used
	dead     bool     // set by PathDead

	supply
}

// supply holds what a kind of lab provides. All fields except dial are optional.
type supply struct {
	dial    func(ctx context.Context, node string) (*Node, error)
	down    func(ctx context.Context) error // undoes what Up has done
	network *network                        // nil means the lab's own network with the plan's addresses
	carried bool                            // whether HostNode is a node of the lab
	dir     string                          // directory of the lab on this machine; "" means none
	owned   bool                            // whether down also undoes all settings in the lab
	// regularly calls a function at intervals. It stops when the function fails or the lab is taken down.
	regularly func(func(context.Context) error)
	// lead adds routes that make data use the tunnel in a slot, if the network does not belong to the lab.
	// The function that it returns removes the routes. agentless is the end of the tunnel on a router without
	// an agent, or nil. lead adds that router's routes to agentless. A nil lead means that no routes are
	// needed or that tunnels are impossible.
	lead func(ctx context.Context, slot int, agentless *agentlessEnd) (func(context.Context) error, error)
	// again rediscovers the path between the ends, and the devices on the path. If nil, this is not needed.
	again func(ctx context.Context) error
	// Close calls leave while the nodes are still reachable.
	leave func(ctx context.Context) error
	// devices maps nodes and ports to device names, for nodes whose devices do not have the names of ports.
	devices map[string]map[string]string

	// contact is the address to which data is sent, if it was chosen only because ssh reaches the far end
	// there. In that case, the far end has other addresses, too.
	contact netip.Addr
	// management maps nodes to the devices through which they are reached, if known.
	management map[string]string

	guests *Local // description of a lab that has guests; nil for other labs
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

// MachineFacts returns facts about the machine that hosts the guests of the lab. They are needed to compare
// results with those from other machines. MachineFacts returns nil if the lab has no guests.
func (l *Lab) MachineFacts(ctx context.Context) map[string]string {
	if l.guests == nil {
		return nil
	}
	return l.guests.guestFacts(ctx)
}

// These constants are the times by which a trial may exceed its configured duration in a lab without guests
// and in a lab with guests. The time with guests suffices for slow emulated guests on a busy machine. Guests
// that hang are detected much earlier.
const (
	UsualSlack = 20 * time.Second
	guestSlack = 60 * time.Second
)

// Slack returns the time by which a trial may exceed its configured duration.
func (l *Lab) Slack() time.Duration {
	if l.guests != nil {
		return guestSlack
	}
	return UsualSlack
}

// Node returns the node with the given name. It connects to the node on first use.
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

// Nodes returns the names of all nodes from near to far, followed by HostNode if the lab has it.
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

// Close undoes settings, takes down tunnels, closes connections, and takes down the lab unless this program
// has only attached to it. Close continues after errors and returns them joined as ErrDirty. It ignores
// settings in a lab that no longer exists, because they need no undoing.
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
		if len(l.settings) == 0 { // otherwise, the guard still has settings to undo
			err = errors.Join(err, n.dismiss(ctx, l.journal))
		}

		n.close()
		delete(l.nodes, name)
	}

	l.mu.Unlock()
	if l.down != nil {
		downErr := l.down(ctx)
		if l.owned && downErr == nil && l.goneWithIt() {
			// Record that the settings of the lab, which no longer exists, are undone.
			err = nil
			for _, t := range l.settings {
				err = errors.Join(err, l.journal.Done(t.seq))
			}

			l.settings = nil
		}

		err = errors.Join(err, downErr)
	}

	if err != nil {
		return dirtied("take down lab "+l.ID, err)
	}

	return nil
}

// ErrDirty reports that a change could not be undone. The text of the error lists what remains; "lab restore"
// tries to undo it again.
var ErrDirty = errors.New("left dirty")

// dirtied adds the operation to err, and wraps ErrDirty unless err already does.
func dirtied(operation string, err error) error {
	if errors.Is(err, ErrDirty) {
		return fmt.Errorf("%s: %w", operation, err)
	}
	return fmt.Errorf("%s: %w: %w", operation, ErrDirty, err)
}

// NoTopology is the error if no available lab has the topology or can build it with the requested routers.
type NoTopology struct{ Topology, Reason string }

// noGuests returns the error for a requested guest size in a lab whose routers are not booted for the run.
func noGuests(topology string) error {
	why := "vcpus, memory and mitigations need a router that is booted for the run"
	return check.WithHint(&NoTopology{topology, why}, "take lab vm, which boots its routers")
}

func (e *NoTopology) Error() string { return "topology " + e.Topology + ": " + e.Reason }

// Assemble returns a lab that consists of existing nodes. Close undoes settings and tunnels but does not take
// down the nodes. Each node of the topology must have an agent, or a driver and a host. HostNode is optional.
// If j is nil, changes are not journalled.
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

// Ends returns the two ends, including their addresses, that a tunnel of the given kind would have in a slot
// from 1 to Slots-1.
func (l *Lab) Ends(ctx context.Context, kind string, slot int) (near, far tunnel.End, err error) {
	x, err := l.planTunnel(ctx, TunnelSpec{Kind: kind}, slot)
	return x.ends[0], x.ends[1], err
}
