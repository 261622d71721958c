package lab

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab/driver"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// cut is a host whose connection is broken.
type cut struct{ host.Host }

// guarding is a driver whose guard, which is called "ours", can be there or not.
type guarding struct {
	driver.Linux
	there     bool
	dismissed *[]string
}

func (g guarding) Dismiss(_ context.Context, _ host.Host, name string) error {
	*g.dismissed = append(*g.dismissed, name)
	return nil
}

func (g guarding) Touch(_ context.Context, h host.Host, name string) error {
	_, broken := h.(cut)
	if broken || !g.there || name != "ours" {
		return errors.New("no guard")
	}
	return nil
}

// TestAGuardIsInherited: a node whose connection broke keeps the guard that it left there, while that is
// there. What it left is removed at the end in either case.
func TestAGuardIsInherited(t *testing.T) {
	for _, there := range []bool{true, false} {
		l := newForward(t, record.LabSSH, Parts{})
		touched := 0
		l.regularly = func(do func(context.Context) error) {
			if do(t.Context()) == nil {
				touched++
			}
		}
		by := guarding{there: there, dismissed: new([]string)}
		l.dial = func(context.Context, string) (*Node, error) {
			return &Node{Name: "router", Host: host.Local(), Driver: by}, nil
		}
		l.nodes["router"] = &Node{
			Name:   "router",
			Host:   cut{host.Local()},
			Driver: by,
			guard:  guard{name: "ours"},
		}
		fresh, found := l.Reconnect(t.Context())
		if !fresh || found == nil {
			t.Fatalf("renew: got %v, %v, want a new connection and why", fresh, found)
		}

		want := map[bool]string{true: "ours"}[there]
		often := map[bool]int{true: 1}[there]
		got := l.nodes["router"].guard.name
		if got != want || touched != often {
			t.Errorf("guard there %v: got %q, touched %d times, want %q, %d", there, got, touched, want,
				often)
		}

		if err := l.nodes["router"].dismiss(t.Context(), nil); err != nil || !slices.Equal(*by.dismissed,
			[]string{"ours"}) {
			t.Errorf("guard there %v: %v, dismissed %q, want it alone", there, err, *by.dismissed)
		}
	}
}

// unarmed is a driver whose guard starts, but cannot be armed the first time.
type unarmed struct {
	driver.Linux
	started *int
	dismiss func(name string) error
}

func (u unarmed) Guard(context.Context, host.Host, string, []record.Setting, time.Duration) (string, error) {
	if *u.started++; *u.started == 1 {
		return "first", errors.New("no room for its script")
	}
	return "second", nil
}

func (u unarmed) Touch(context.Context, host.Host, string) error { return nil }

func (u unarmed) Dismiss(_ context.Context, _ host.Host, name string) error { return u.dismiss(name) }

// TestAGuardThatIsNotArmedIsDismissed: nobody would keep in touch with it. Where it cannot be dismissed it is
// at the end; the next setting has one of its own in either case.
func TestAGuardThatIsNotArmedIsDismissed(t *testing.T) {
	for _, cannot := range []error{nil, errors.New("cut off")} {
		l := newForward(t, record.LabSSH, Parts{})
		kept := 0
		l.regularly = func(func(context.Context) error) { kept++ }
		var dismissed []string
		n := &Node{
			Name: "router",
			Host: host.Local(),
			Driver: unarmed{
				started: new(int),
				dismiss: func(name string) error {
					dismissed = append(dismissed, name)
					return cannot
				},
			},
			Facts: record.NodeFacts{CPUs: record.CPUsOwn},
		}
		d := site{l: l, n: n}
		if err := d.startGuard(t.Context()); err == nil || n.guard.name != "" || kept != 0 ||
			!slices.Equal(dismissed, []string{"first"}) {
			t.Errorf("dismissing fails with %v: got %v, guard %q, kept in touch %d times, dismissed %q",
				cannot, err, n.guard.name, kept, dismissed)
		}

		if err := d.startGuard(t.Context()); err != nil || n.guard.name != "second" || kept != 1 {
			t.Errorf("dismissing fails with %v, then: got %v, guard %q, kept in touch %d times, want one",
				cannot, err, n.guard.name, kept)
		}

		want := []string{"first", "second"}
		if cannot != nil {
			want = []string{"first", "first", "second"}
		}

		if err := n.dismiss(t.Context(), nil); !errors.Is(err, cannot) || !slices.Equal(dismissed, want) {
			t.Errorf("dismissing fails with %v, at the end: got %v, dismissed %q, want %q", cannot, err,
				dismissed, want)
		}
	}
}

// hangsUp is an agent that can only be closed.
type hangsUp struct {
	host.Agent
	closed bool
}

func (a *hangsUp) Close() error {
	a.closed = true
	return nil
}

// TestADriverIsNoAgent: a node that a driver has set something on is not taken over by an agent.
func TestADriverIsNoAgent(t *testing.T) {
	l := newForward(t, record.LabSSH, Parts{})
	other := &hangsUp{}
	l.dial = func(context.Context, string) (*Node, error) { return &Node{Name: "router", Agent: other}, nil }
	l.nodes["router"] = &Node{
		Name:   "router",
		Host:   cut{host.Local()},
		Driver: guarding{},
		guard:  guard{name: "ours"},
	}
	fresh, found := l.Reconnect(t.Context())
	if fresh || found == nil || !other.closed ||
		l.nodes["router"].HasAgent() {
		t.Errorf("renew: got %v, %v, agent closed %v, want the node as it was", fresh, found, other.closed)
	}
}
