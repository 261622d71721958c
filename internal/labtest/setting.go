package labtest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// ReadState reads a setting without changing it: it begins to turn the knob and leaves when the node has
// said what it found.
func ReadState(t *testing.T, l *lab.Lab, k knob.Knob, s record.Setting, want knob.State) (knob.State,
	error) {
	ctx := Context(t)
	n, err := l.Node(ctx, s.Node)
	if err != nil {
		return "", err
	}
	p := knob.Place{Node: s.Node, Port: s.Port, Ports: l.Ports(s.Node)}
	p.Inside, p.Outside, p.WAN = surroundings(l, s.Node)
	session, err := n.Agent.Open(ctx, host.Verb(host.FamilyKnob, k.Name()), agent.Turn{Place: p, Want: want})
	if err != nil {
		return "", err
	}
	defer session.Close()
	var held agent.Held
	if err := host.Await(ctx, session, &held); err != nil {
		return "", fmt.Errorf("begin to turn %s: %w", k.Name(), err)
	}
	return held.State, nil
}

// ReadSetting is the present state of what a setting would change, in the words of its knob.
func ReadSetting(t *testing.T, l *lab.Lab, knobs []knob.Knob, s record.Setting) knob.State {
	t.Helper()
	for _, k := range knobs {
		text := s.Value
		if family, isFamily := strings.CutSuffix(k.Name(), ":"); isFamily {
			member, ok := strings.CutPrefix(s.Knob, family+":")
			if !ok {
				continue
			}
			text = member + "=" + text
		} else if k.Name() != s.Knob {
			continue
		}
		want, err := k.Parse(text)
		MustDo(t, err, "parse %s=%s", s.Knob, s.Value)
		got, err := ReadState(t, l, k, s, want)
		MustDo(t, err, "read %s", s.Knob)
		return got
	}
	t.Fatalf("no knob %s", s.Knob)
	return ""
}

// surroundings are what a port forward joins: the near node's addresses and the router's own, on the port
// that faces the far side.
func surroundings(l *lab.Lab, node string) (inside, outside []string, wan string) {
	for ip := 4; ip <= 6; ip += 2 {
		inside = append(inside, l.Address(0, 0, ip).String())
		if a, err := l.ForwardAddress(ip); err == nil && len(l.Topology.Routers) > 0 &&
			node == l.Topology.Routers[0] {
			outside, wan = append(outside, a.String()), "wan"
		}
	}
	return inside, outside, wan
}
