package labtest

import (
	"fmt"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// ReadState reads a setting without changing it: it opens a session of the knob, and closes it when the
// node has reported its state.
func ReadState(t *testing.T, l *lab.Lab, k knob.Knob, s record.Setting, want knob.State) (knob.State, error) {
	ctx := Context(t)
	n, err := l.Node(ctx, s.Node)
	if err != nil {
		return "", err
	}

	p := knob.Place{Node: s.Node, Port: s.Port, Ports: l.Ports(s.Node)}
	p.Inside, p.Outside, p.WAN = surroundings(l, s.Node)
	request := agent.KnobRequest{Place: p, Want: want}
	session, err := n.Agent.Open(ctx, host.Verb(host.FamilyKnob, k.Name()), request)
	if err != nil {
		return "", err
	}
	defer session.Close()
	var held agent.KnobReply
	if err := host.Await(ctx, session, &held); err != nil {
		return "", fmt.Errorf("begin to turn %s: %w", k.Name(), err)
	}

	return held.State, nil
}

// surroundings returns the addresses that a port forward connects. inside lists the addresses of the near
// endpoint, and outside lists those of the router's WAN port. wan is that port.
func surroundings(l *lab.Lab, node string) (inside, outside []string, wan string) {
	for ip := 4; ip <= 6; ip += 2 {
		inside = append(inside, l.Address(0, 0, ip).String())
		if a, err := l.ForwardAddress(ip); err == nil && len(l.Topology.Routers) > 0 &&
			node == l.Topology.Routers[0] {
			outside = append(outside, a.String())
			wan = "wan"
		}
	}
	return inside, outside, wan
}
