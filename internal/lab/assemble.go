package lab

import (
	"context"
	"fmt"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/journal"
	"github.com/chokepoint-lab/chokepoint/internal/lab/tunnel"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Assemble makes a lab of nodes that stand already: it brings nothing up and takes nothing down, but puts
// settings and tunnels back at Close. Every node of the topology must be there, with an agent or with a
// driver and a host; the node HostNode is optional. j may be nil: then nothing is written down for restore.
func Assemble(id string, t record.Topology, nodes []*Node, parts Parts, j *journal.Journal) (*Lab, error) {
	l := newLab(id, "assembled", t, parts, j)
	l.carried = true
	for _, n := range nodes {
		if !n.HasAgent() && !n.HasDriver() {
			return nil, fmt.Errorf("assemble lab %s: node %s has neither an agent nor a driver "+
				"and a host", id,
				n.Name)
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

// Ends are the two nodes between which a tunnel of a kind would be laid in a slot (1 to Slots-1), with
// their addresses.
func (l *Lab) Ends(ctx context.Context, kind string, slot int) (near, far tunnel.End, err error) {
	_, near, far, err = l.tunnelEnds(ctx, TunnelSpec{Kind: kind}, slot)
	return near, far, err
}
