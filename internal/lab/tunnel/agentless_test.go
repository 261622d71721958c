package tunnel

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/expect"
)

// both are the two agentless ends of a tunnel: what one sends the other has received.
type both struct {
	mu   sync.Mutex
	sent [2]uint64
	told [2][]string
	fail string // the step of the far end that fails
	dead bool
}

type agentlessEnd struct {
	*both
	i int
}

func (e agentlessEnd) step(name string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.told[e.i] = append(e.told[e.i], name)
	if e.i == 1 && strings.HasPrefix(name, e.fail) && e.fail != "" {
		return errors.New("it is broken")
	}

	return nil
}

// held is an agent that holds the end.
func (e agentlessEnd) held(t *testing.T) host.Agent {
	return Agentless(t.Context(), Router{e.Check, e.Open, e.Connect, e.Read, e.Send})
}

func (e agentlessEnd) Check(context.Context) check.Answer {
	if err := e.step("check"); err != nil {
		return check.Not("%v", err)
	}
	return check.OK()
}

func (e agentlessEnd) Open(_ context.Context, s Spec, inner []netip.Prefix) (string, error) {
	return []string{"near", "far"}[e.i], e.step("open " + s.Device + " " + inner[0].String())
}

func (e agentlessEnd) Connect(_ context.Context, public string, at netip.AddrPort,
	allowed []netip.Prefix) error {
	return e.step("connect " + public + " " + at.String() + " " + allowed[0].String())
}

func (e agentlessEnd) Read(context.Context) (c kernel.LinkCounters, handshake int64, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	c.TxPackets = e.sent[e.i]
	c.RxPackets = e.sent[1-e.i]
	if e.fail == "read" && e.i == 1 {
		err = errors.New("it is broken")
	}

	return c, 0, err
}

func (e agentlessEnd) Send(context.Context, netip.Addr) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.dead {
		e.sent[e.i]++
	}

	return nil
}

// TestAgentless: agentless ends are laid by the same exchange as others, each step once; what fails is said,
// and both ends' sessions end.
func TestAgentless(t *testing.T) {
	for _, tt := range []struct{ kind, fail, want string }{
		{nameAuto, "", ""}, {nameKernel, "", ""},
		{nameKernel, "open", "far: it is broken"}, {nameKernel, "connect", "far: it is broken"},
		{nameKernel, "read", "far: it is broken"},
		{nameAuto, "dead", "prove the path from near to far: it is late"},
	} {
		e := &both{fail: tt.fail, dead: tt.fail == "dead"}
		var ends [2]End
		for i, node := range []string{"near", "far"} {
			address := netip.AddrFrom4([4]byte{192, 0, 2, byte(i + 1)})
			inner := netip.AddrFrom4([4]byte{198, 19, 1, byte(i + 1)})
			ends[i] = End{
				Node:      node,
				Agent:     agentlessEnd{e, i}.held(t),
				Outer:     address,
				Agentless: true,
				Inner:     []netip.Prefix{netip.PrefixFrom(inner, 24)},
			}
		}

		var kind Tunnel = WireGuardKernel()
		if tt.kind == nameAuto {
			kind = WireGuard()
		}

		ctx, cancel := context.WithCancelCause(t.Context())
		if e.dead {
			time.AfterFunc(100*time.Millisecond, func() { cancel(errors.New("it is late")) })
		}

		p, err := kind.Up(ctx, ends[0], ends[1], Spec{Device: "tun3", Port: 51823})
		expect.Error(t, fmt.Sprintf("%+v", tt), err, tt.want)
		if err == nil {
			c, err := p.Counters(t.Context(), false)
			if p.MTU() != DefaultMTU || err != nil || c.Implementation != "kernel" {
				t.Errorf("%+v: mtu %d, counters %+v, %v", tt, p.MTU(), c, err)
			}

			got := strings.Join(e.told[1], ", ")
			if !strings.HasSuffix(got, "open tun3 198.19.1.2/24, "+
				"connect near 192.0.2.1:51823 198.19.1.1/32") {
				t.Errorf("%+v: the far end was told %s", tt, got)
			}

			if err := p.Down(t.Context()); err != nil {
				t.Errorf("%+v: down: %v", tt, err)
			}
		}

		cancel(nil)
		for _, e := range ends {
			if err := e.Agent.Close(); err != nil { // its handlers have returned
				t.Errorf("%+v: %v", tt, err)
			}
		}
	}
}

// TestAgentlessCheck: the answer is that of the router, whichever of the kinds is asked for.
func TestAgentlessCheck(t *testing.T) {
	for _, fail := range []string{"", "check"} {
		e := &both{fail: fail}
		near := agentlessEnd{e, 0}.held(t)
		far := agentlessEnd{e, 1}.held(t)
		for _, kind := range []Tunnel{WireGuard(), WireGuardKernel(), WireGuardUserspace()} {
			a := kind.Check(t.Context(), End{Node: "near", Agent: near, Agentless: true},
				End{Node: "far", Agent: far, Agentless: true})
			want := map[bool]check.State{true: check.Yes, false: check.No}[fail == "" &&
				kind.Name() != nameUserspace]
			if a.State != want || fail != "" && kind.Name() != nameUserspace &&
				a.Reason != "far: it is broken" {
				t.Errorf("fails at %q: %s: got %v (%s)", fail, kind.Name(), a.State, a.Reason)
			}
		}

		if err := errors.Join(near.Close(), far.Close()); err != nil {
			t.Error(err)
		}
	}
}

// TestAgentlessAloneHasNoPresharedKey: the other end of an agentless one is given zeros, which are none.
func TestAgentlessAloneHasNoPresharedKey(t *testing.T) {
	for _, agentless := range []bool{true, false} {
		got := make(chan []byte, 1)
		serve := func(ctx context.Context, s host.Session) error {
			var r request
			if err := s.Recv(&r); err != nil {
				return err
			}
			return meet(ctx, s, "near", func(_ context.Context, secret []byte, _ connect) error {
				got <- append([]byte(nil), secret...)
				return errors.New("that is all")
			})
		}
		near := host.Inside(t.Context(), map[string]host.Handler{"tunnel/" + nameKernel: serve})
		far := agentlessEnd{&both{}, 1}.held(t)
		in := func(last byte) []netip.Prefix {
			return []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 19, 1, last}), 24)}
		}
		_, err := WireGuardKernel().Up(t.Context(), End{
			Node:  "near",
			Agent: near,
			Inner: in(1),
			Outer: netip.MustParseAddr("192.0.2.1"),
		}, End{
			Node:      "far",
			Agent:     far,
			Inner:     in(2),
			Agentless: agentless,
			Outer:     netip.MustParseAddr("192.0.2.2"),
		}, Spec{})
		if err == nil || !strings.Contains(err.Error(), "near: that is all") {
			t.Fatal(err)
		}

		none := string(<-got) == string(make([]byte, presharedSize))
		if none != agentless {
			t.Errorf("agentless %t: no preshared key: %t", agentless, none)
		}

		if err := errors.Join(near.Close(), far.Close()); err != nil {
			t.Error(err)
		}
	}
}
