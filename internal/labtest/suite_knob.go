package labtest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// KnobSuite is what every knob must do on a real lab, for one setting: parse stably, be applied as it is
// read back, be restored, and be put back by the node itself when the session that holds it is killed.
// attach returns another controller's view of the same lab.
func KnobSuite(t *testing.T, l *lab.Lab, attach func() *lab.Lab, k knob.Knob, s record.Setting) {
	ctx := Context(t)
	want := parseStably(t, k, s)
	able(t, "this kernel or user lacks the setting", l.CheckSetting(ctx, s))
	read := func() knob.State {
		t.Helper()
		got, err := readSetting(t, l, k, s, want)
		if err != nil {
			t.Errorf("read %s: %v", s.Knob, err)
		}
		return got
	}
	before := read()
	if k.Same(want, before) {
		t.Fatalf("%s=%s holds already: the suite wants a level that changes something", s.Knob, s.Value)
	}
	for range 2 { // the second time nothing is done
		mustDo(t, l.Settle(ctx, []record.Setting{s}), "apply %s=%s", s.Knob, s.Value)
		if got := read(); !k.Same(want, got) {
			t.Errorf("read back: got %q, want %q", got, want)
		}
	}
	mustDo(t, l.Settle(ctx, nil), "restore %s", s.Knob)
	if got := read(); got != before {
		t.Errorf("restored: got %q, want %q as before", got, before)
	}
	other := attach()
	mustDo(t, other.Settle(ctx, []record.Setting{s}), "apply %s=%s by another controller", s.Knob, s.Value)
	if got := read(); !k.Same(want, got) {
		t.Errorf("set by another controller: got %q, want %q", got, want)
	}
	nodeOf(t, other, s.Node).Agent.Close() // as a controller that dies
	var got knob.State
	var err error
	if !eventually(2*time.Second, func() bool {
		got, err = readSetting(t, l, k, s, want) // fails while the node is half way back
		return got == before
	}) {
		t.Errorf("after the session was killed: got %q, %v, want %q as before", got, err, before)
	}
}

// parseStably parses a setting's value; the canonical text must parse to itself, and nonsense to an error
// that says what is allowed.
func parseStably(t *testing.T, k knob.Knob, s record.Setting) knob.State {
	t.Helper()
	text := s.Value
	if _, member, isFamily := strings.Cut(s.Knob, ":"); isFamily {
		text = member + "=" + text
	}
	want, err := k.Parse(text)
	mustDo(t, err, "parse %q", text)
	if again, err := k.Parse(string(want)); err != nil || again != want {
		t.Errorf("parse canonical %q: got %q, %v, want itself", want, again, err)
	}
	if got, err := k.Parse("no such level \x00"); err == nil || got != "" {
		t.Errorf("parse nonsense: got %q, %v, want an error and no state", got, err)
	}
	return want
}

// readSetting reads a setting without changing it: it begins to turn the knob and leaves when the node has
// said what it found.
func readSetting(t *testing.T, l *lab.Lab, k knob.Knob, s record.Setting, want knob.State) (knob.State,
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
		mustDo(t, err, "parse %s=%s", s.Knob, s.Value)
		got, err := readSetting(t, l, k, s, want)
		mustDo(t, err, "read %s", s.Knob)
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
