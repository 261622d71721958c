package labtest

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/journal"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

func TestRouterOfCommandsConforms(t *testing.T) {
	h := NewRouter("router", []string{"lan", "wan"}, nil)
	DriverSuite(t, RouterDriver{}, h, []record.Setting{
		{Knob: "firewall", Node: "router", Value: "10 stateful"},
		{Knob: "nat", Node: "router", Value: "masquerade"},
		{Knob: "queue", Node: "router", Port: "wan", Value: "tbf rate 300M burst 128k limit 256k"},
		{Knob: "queue", Node: "router", Value: "pfifo limit 50"},
		{Knob: "link_mtu", Node: "router", Value: "lan: 1400; wan: 9000"},
	})
	a := (RouterDriver{}).Check(Context(t), NewHost("toaster", nil, nil))
	if a.State != check.No {
		t.Errorf("check of a machine that is no such router: got %v (%s), want no", a.State, a.Reason)
	}
}

func FuzzParseConfig(f *testing.F) {
	f.Add("nat off\nlan.link_mtu 1500\n")
	f.Add("nat\n")
	f.Add("a b\na c\n")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := parseConfig(text)
		if err != nil {
			if got != nil {
				t.Errorf("parse %q: got %v with an error, want nil", text, got)
			}
			return
		}

		again, err := parseConfig(printConfig(got))
		diff := cmp.Diff(got, again)
		if diff != "" || err != nil {
			t.Errorf("parse what was printed of %q: %v (-want +got)\n%s", text, err, diff)
		}
	})
}

// TestFakesAreFoundInCanonicalStates: a fake node speaks the real knobs' text.
func TestFakesAreFoundInCanonicalStates(t *testing.T) {
	for _, k := range knob.All() {
		text := string(starts[k.Name()])
		if strings.HasSuffix(k.Name(), ":") {
			continue // a family's members are found as "name=0"
		}

		if got, err := k.Parse(text); err != nil || string(got) != text {
			t.Errorf("knob %s: %q parses to %q, %v, want itself", k.Name(), text, got, err)
		}
	}
}

// TestSettle: exactly the wanted settings hold, and Close restores the rest, on nodes with an agent and on
// routers of commands alike.
func TestSettle(t *testing.T) {
	s := func(knob, node, port, value string) record.Setting {
		return record.Setting{Knob: knob, Node: node, Port: port, Value: value}
	}
	steps := []struct {
		want []record.Setting
		hold []string
	}{
		{[]record.Setting{s("firewall", "router-a", "", "10"), s("nat", "router-b", "", "masquerade")},
			[]string{"router-b nat@=masquerade", "router-a firewall=10"}},
		{[]record.Setting{s("firewall", "router-a", "", "20 stateful"), s("nat", "router-b", "",
			"masquerade"), s("sysctl:net.ipv4.tcp_ecn", "client", "", "1")},
			[]string{"client sysctl:net.ipv4.tcp_ecn@=net.ipv4.tcp_ecn=1", "router-b nat@=masquerade",
				"router-a firewall=20 stateful"}},
		{[]record.Setting{s("queue", "router-a", "wan", "pfifo limit 50"), s("queue", "router-a", "lan",
			"pfifo limit 9"), s("queue", "router-b", "wan", "pfifo limit 7")},
			[]string{"router-b queue@wan=pfifo limit 7", "router-a lan.queue=pfifo limit 9",
				"router-a wan.queue=pfifo limit 50"}},
		{nil, nil},
		{[]record.Setting{s("link_mtu", "router-a", "", "1400")}, []string{"router-a lan.link_mtu=1400",
			"router-a wan.link_mtu=1400"}},
	}
	shape, err := lab.TopologyNamed("site-to-site")
	if err != nil {
		t.Fatal(err)
	}

	j, err := journal.Create(t.TempDir(), "me", "")
	if err != nil {
		t.Fatal(err)
	}

	f := &Lab{Topology: shape, Agentless: []string{"router-a"}, Journal: j}
	l, err := f.Up()
	if err != nil {
		t.Fatal(err)
	}

	for i, step := range steps {
		if err := l.Reconcile(Context(t), step.want); err != nil {
			t.Fatalf("step %d: %v", i, err)
		}

		diff := cmp.Diff(step.hold, f.State())
		if diff != "" {
			t.Errorf("step %d, settings in force (-want +got):\n%s", i, diff)
		}
	}

	if err := l.Close(Context(t)); err != nil {
		t.Errorf("close: %v", err)
	}

	left := f.State()
	if len(left) > 0 {
		t.Errorf("after close: got %v, want everything as it was found", left)
	}

	if err := j.Close(); err != nil {
		t.Errorf("journal: got %v, want every change undone", err)
	}
}

// stubborn is a router that takes a setting and does something else.
type stubborn struct {
	RouterDriver
	broken bool // refuses to be restored, too
}

func (s stubborn) Apply(ctx context.Context, h host.Host, set record.Setting) error {
	switch {
	case set.Value == "10":
		set.Value = "11"
	case s.broken:
		return errors.New("the router hangs")
	}
	return s.RouterDriver.Apply(ctx, h, set)
}

// TestSettingThatDoesNotTake: what is read back decides; what was changed is undone, and if it cannot be,
// the lab is dirty and the journal knows.
func TestSettingThatDoesNotTake(t *testing.T) {
	for _, broken := range []bool{false, true} {
		shape, err := lab.TopologyNamed("forward")
		if err != nil {
			t.Fatal(err)
		}

		dir := t.TempDir()
		j, err := journal.Create(dir, "me", "")
		if err != nil {
			t.Fatal(err)
		}

		router := NewRouter("router", []string{"lan", "wan"}, nil)
		nodes := []*lab.Node{{Name: "client", Agent: Serve(nil)}, {Name: "server", Agent: Serve(nil)},
			{Name: "router", Host: router, Driver: stubborn{broken: broken}}}
		l, err := lab.Assemble("x", shape, nodes, lab.Parts{Knobs: knob.All()}, j)
		if err != nil {
			t.Fatal(err)
		}

		err = l.Reconcile(Context(t), []record.Setting{{Knob: "firewall", Node: "router", Value: "10"}})
		if err == nil || !strings.Contains(err.Error(), "apply firewall=10 on router: read back 11") ||
			errors.Is(err, lab.ErrDirty) != broken {
			t.Errorf("restorable %v: got %v, want what was read back, and dirty: %v", !broken, err, broken)
		}

		if err := l.Reconcile(Context(t), nil); errors.Is(err, lab.ErrDirty) != broken {
			t.Errorf("restorable %v: settle again: got %v, want dirty: %v", !broken, err, broken)
		}

		if err := l.Close(Context(t)); errors.Is(err, lab.ErrDirty) != broken {
			t.Errorf("restorable %v: close: got %v, want dirty: %v", !broken, err, broken)
		}

		if err := j.Close(); (err != nil) != broken {
			t.Errorf("journal of a router that can be restored (%v): got %v", !broken, err)
		}
	}
}

// TestSettingThatIsNotPutBackIsNotForgotten: while a node cannot put a setting back, nothing else is
// settled; once it can, all goes on.
func TestSettingThatIsNotPutBackIsNotForgotten(t *testing.T) {
	queue := func(value string) record.Setting {
		return record.Setting{Knob: "queue", Node: "router", Port: "wan", Value: value}
	}
	wish := record.Setting{Knob: "firewall", Node: "router", Value: "10"}
	for _, tt := range []struct {
		name   string
		settle []record.Setting // what is in force, or half applied, when the node breaks
		refuse string           // a state that it does not take
	}{
		{"undoing fails", []record.Setting{queue("pfifo limit 50")}, ""},
		{"applying and undoing fail", []record.Setting{queue("pfifo limit 50"), queue("pfifo limit 60")},
			"pfifo limit 60"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, k, j := moody(t)
			k.refuse = map[knob.State]bool{knob.State(tt.refuse): true, knob.State(k.state): true}
			if tt.refuse == "" {
				if err := l.Reconcile(Context(t), tt.settle); err != nil {
					t.Fatal(err)
				}
			} else if err := l.Reconcile(Context(t), tt.settle[1:]); !errors.Is(err, lab.ErrDirty) {
				t.Errorf("apply and undo fail: got %v, want dirty", err)
			}

			for range 2 {
				if err := l.Reconcile(Context(t), []record.Setting{wish}); !errors.Is(err, lab.ErrDirty) {
					t.Errorf("settle over what was not undone: got %v, want dirty", err)
				}
			}

			k.allow()
			if err := l.Reconcile(Context(t), tt.settle[:1]); err != nil {
				t.Errorf("settle once the node can: %v", err)
			}

			if err := errors.Join(l.Close(Context(t)), j.Close()); err != nil {
				t.Errorf("close: got %v, want every change undone", err)
			}

			if k.state != "noqueue" {
				t.Errorf("after close: got %s, want noqueue", k.state)
			}
		})
	}
}

// moodyKnob is the queue of a node that refuses some states.
type moodyKnob struct {
	knob.Knob
	mu     sync.Mutex
	state  knob.State
	refuse map[knob.State]bool
}

func (k *moodyKnob) allow() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.refuse = nil
}

func (k *moodyKnob) Check(context.Context, knob.Place, knob.State) check.Answer { return check.OK() }

func (k *moodyKnob) Read(context.Context, knob.Place, knob.State) (knob.State, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.state, nil
}

func (k *moodyKnob) Apply(_ context.Context, _ knob.Place, s knob.State) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.refuse[s] {
		k.state = "neither"
		return errors.New("the node hangs")
	}

	k.state = s
	return nil
}

// moody is a lab whose router has such a queue.
func moody(t *testing.T) (*lab.Lab, *moodyKnob, *journal.Journal) {
	t.Helper()
	shape, err := lab.TopologyNamed("forward")
	if err != nil {
		t.Fatal(err)
	}

	j, err := journal.Create(t.TempDir(), "me", "")
	if err != nil {
		t.Fatal(err)
	}

	k := &moodyKnob{Knob: knob.Queue(), state: "noqueue"}
	a := Serve(agent.Handlers(agent.ChildRole, agent.Parts{Knobs: []knob.Knob{k, memory{
		Knob:  knob.Firewall(),
		start: "off",
		node:  &nodeState{settings: map[string]knob.State{}},
	}}}))
	nodes := []*lab.Node{{Name: "client", Agent: Serve(nil)}, {Name: "server", Agent: Serve(nil)},
		{Name: "router", Agent: a}}
	l, err := lab.Assemble("x", shape, nodes, lab.Parts{Knobs: knob.All()}, j)
	if err != nil {
		t.Fatal(err)
	}

	return l, k, j
}

// TestSettleDoesNotWaitForASilentNode: the node has taken the question and says nothing more, not even when
// it is asked to stop.
func TestSettleDoesNotWaitForASilentNode(t *testing.T) {
	t.Parallel()
	shape, err := lab.TopologyNamed("forward")
	if err != nil {
		t.Fatal(err)
	}

	silent := func(ctx context.Context, s host.Session) error {
		<-ctx.Done()
		return nil
	}
	nodes := []*lab.Node{{Name: "client", Agent: Serve(nil)}, {Name: "server", Agent: Serve(nil)},
		{Name: "router", Agent: Serve(map[string]host.Handler{"knob/firewall": silent})}}
	l, err := lab.Assemble("x", shape, nodes, lab.Parts{Knobs: knob.All()}, nil)
	if err != nil {
		t.Fatal(err)
	}

	cause := errors.New("enough")
	ctx, cancel := context.WithTimeoutCause(context.Background(), 10*time.Millisecond, cause)
	defer cancel()
	settled := make(chan error, 1)
	go func() {
		settled <- l.Reconcile(ctx, []record.Setting{{
			Knob:  "firewall",
			Node:  "router",
			Value: "10",
		}})
	}()
	select {
	case err := <-settled:
		if !errors.Is(err, cause) || errors.Is(err, lab.ErrDirty) {
			t.Errorf("settle: got %v, want the cause, and nothing dirty: nothing was changed", err)
		}
	case <-time.After(12 * time.Second):
		t.Error("settle still waits for the node")
	}

	for _, n := range nodes {
		n.Agent.Close()
	}
}

func TestAssembleWantsEveryNode(t *testing.T) {
	shape, err := lab.TopologyNamed("to-router")
	if err != nil {
		t.Fatal(err)
	}

	a := Serve(nil)
	defer a.Close()
	for _, tt := range []struct {
		nodes []*lab.Node
		want  string
	}{
		{[]*lab.Node{{Name: "client", Agent: a}}, "topology to-router wants node router"},
		{[]*lab.Node{{Name: "client", Agent: a}, {Name: "router"}},
			"node router has neither an agent nor a driver and a host"},
		{[]*lab.Node{{Name: "client", Agent: a}, {Name: "router", Driver: RouterDriver{}}},
			"node router has neither an agent nor a driver and a host"},
	} {
		if _, err := lab.Assemble("x", shape, tt.nodes, lab.Parts{}, nil); err == nil ||
			!strings.Contains(err.Error(), tt.want) {
			t.Errorf("got %v, want an error with %q", err, tt.want)
		}
	}
}

// TestTunnelsOfAFakeLab: four tunnels are kept; the one not used for longest makes way, and packets are
// counted on the path they take.
func TestTunnelsOfAFakeLab(t *testing.T) {
	shape, err := lab.TopologyNamed("direct")
	if err != nil {
		t.Fatal(err)
	}

	f := &Lab{Topology: shape}
	l, err := f.Up()
	if err != nil {
		t.Fatal(err)
	}

	var slots []int
	for _, mtu := range []int{1420, 1400, 1380, 1360, 1420, 1340, 1400} {
		p, err := l.Path(Context(t), lab.TunnelSpec{Kind: "wireguard", MTU: mtu})
		if err != nil {
			t.Fatal(err)
		}

		slots = append(slots, p.Slot)
		f.Wire.Carry(true, l.Address(p.Slot, 1, 4), 1, 1000)
		c, err := p.Tunnel.Counters(Context(t), false)
		if err != nil || c.Sent == 0 || p.Tunnel.MTU() != mtu {
			t.Errorf("tunnel with mtu %d: got mtu %d and counters %+v, %v, want them to move", mtu,
				p.Tunnel.MTU(), c, err)
		}
	}

	want := []int{1, 2, 3, 4, 1, 2, 3}
	if !slices.Equal(slots, want) {
		t.Errorf("slots: got %v, want %v", slots, want)
	}

	if err := l.Close(Context(t)); err != nil {
		t.Errorf("close: %v", err)
	}

	if len(f.Wire.tunnels) > 0 {
		t.Errorf("after close: got tunnels %v, want none", f.Wire.tunnels)
	}
}

// TestTunnelsSideBySideOfAFakeLab: those that are up already serve again, each with addresses of its own,
// and no lab has more than its slots.
func TestTunnelsSideBySideOfAFakeLab(t *testing.T) {
	shape, err := lab.TopologyNamed("direct")
	if err != nil {
		t.Fatal(err)
	}

	f := &Lab{Topology: shape}
	l, err := f.Up()
	if err != nil {
		t.Fatal(err)
	}

	for _, count := range []int{1, lab.Slots - 1, 4, 0} {
		p, err := l.Path(Context(t), lab.TunnelSpec{Kind: "wireguard", MTU: 1420, Count: count})
		if err != nil {
			t.Fatal(err)
		}

		seen := map[netip.Addr]bool{}
		for _, on := range p.Subpaths() {
			at := l.Address(on.Slot, 1, 4)
			seen[at] = true
			f.Wire.Carry(true, at, 1, 1000)
			if c, err := on.Tunnel.Counters(Context(t), false); err != nil || c.Sent == 0 {
				t.Errorf("%d tunnels, slot %d: got counters %+v, %v, want them to move", count, on.Slot, c,
					err)
			}
		}

		want := max(count, 1)
		if len(seen) != want || len(p.Subpaths()) != want {
			t.Errorf("%d tunnels: got %d paths to %d addresses", count, len(p.Subpaths()), len(seen))
		}
	}

	if _, err := l.Path(Context(t), lab.TunnelSpec{
		Kind:  "wireguard",
		MTU:   1420,
		Count: lab.Slots,
	}); err == nil {
		t.Errorf("%d tunnels: got no error, want one", lab.Slots)
	}

	if p, err := l.Path(Context(t), lab.TunnelSpec{Kind: "wireguard", MTU: 1400, Count: 3}); err != nil ||
		len(p.Subpaths()) != 3 {
		t.Errorf("3 others after %d: got %v, %v", lab.Slots-1, p, err)
	}

	if err := l.Close(Context(t)); err != nil || len(f.Wire.tunnels) > 0 {
		t.Errorf("close: %v, tunnels left %v", err, f.Wire.tunnels)
	}
}

// TestRenewLaysDeadTunnelsAgain: one that does not tell, and the one wanted last, of whose far end nobody
// knows; not the others.
func TestRenewLaysDeadTunnelsAgain(t *testing.T) {
	shape, err := lab.TopologyNamed("direct")
	if err != nil {
		t.Fatal(err)
	}

	f := &Lab{Topology: shape}
	l, err := f.Up()
	if err != nil {
		t.Fatal(err)
	}

	lay := func(mtu int) lab.Path {
		p, err := l.Path(Context(t), lab.TunnelSpec{Kind: "wireguard", MTU: mtu})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	dead := lay(1420)
	alive := lay(1400)
	last := lay(1380)
	if err := dead.Tunnel.Down(Context(t)); err != nil {
		t.Fatal(err)
	}

	fresh, found := l.Reconnect(Context(t))
	if fresh || found != nil {
		t.Errorf("renew: got new agents %v, %v, want none", fresh, found)
	}

	again := lay(1420)
	if _, err := again.Tunnel.Counters(Context(t), false); err != nil || again.Tunnel == dead.Tunnel {
		t.Errorf("tunnel that had died: %v, want a new one", err)
	}

	if lay(1400).Tunnel != alive.Tunnel {
		t.Error("tunnel that lives: got a new one, want it left alone")
	}

	if lay(1380).Tunnel == last.Tunnel {
		t.Error("tunnel wanted last: got the same, want a new one")
	}

	if err := l.Close(Context(t)); err != nil {
		t.Errorf("close: %v", err)
	}
}
