package lab

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/driver"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/journal"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
	"github.com/chokepoint-lab/chokepoint/internal/lab/tunnel"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/expect"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/routeros"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// wire plays the packets between a tunnel's near end, which it plays as well, and a router's.
type wire struct {
	t    *testing.T
	dead bool // nothing arrives

	mu             sync.Mutex
	there, back    uint64 // packets
	public, outer  string // what the near end was told of the other
	secret         []byte
	allowed, inner []string
}

const nearKey = "xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg="

// serve is the near end's half of the exchange.
func (w *wire) serve(_ context.Context, s host.Session) error {
	type message map[string]any
	var r struct {
		Probe bool
		Inner []string
		MTU   int
	}
	if err := s.Recv(&r); err != nil || r.Probe {
		return errors.Join(err, s.Send(message{"answer": check.OK()}))
	}

	var c struct {
		Public, Endpoint string
		Allowed          []string
	}
	err := s.Send(message{"public": nearKey, "answer": check.OK()})
	var secret host.Secret
	if err == nil {
		secret, err = s.(host.SecretSession).RecvSecret()
	}

	if err == nil {
		err = s.Recv(&c)
	}

	w.mu.Lock()
	_ = secret.Use(func(b []byte) error { w.secret = bytes.Clone(b); return nil })
	w.public = c.Public
	w.outer = c.Endpoint
	w.allowed = c.Allowed
	w.inner = r.Inner
	w.mu.Unlock()
	for err == nil {
		w.mu.Lock()
		now := message{"sent_packets": w.there, "received_packets": w.back, "handshake_ns": 1, "mtu": r.MTU}
		w.mu.Unlock()
		err = s.Send(now)
		var a struct{ Prove []string }
		if err == nil {
			err = s.Recv(&a)
		}

		if len(a.Prove) > 0 && !w.dead {
			w.mu.Lock()
			w.there++
			w.mu.Unlock()
		}
	}

	return host.Quiet(err)
}

// onWire has a router's tunnels end at the wire.
func onWire(t *testing.T, d *routeros.Device) *wire {
	w := &wire{t: t}
	d.Pinged = func(string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.back++
	}
	d.Counters = func(string) map[string]uint64 {
		w.mu.Lock()
		defer w.mu.Unlock()
		return map[string]uint64{"rx-byte": 100 * w.there, "rx-packet": w.there, "tx-byte": 100 * w.back,
			"tx-packet": w.back}
	}
	d.Moved = func(string) map[string]string {
		w.mu.Lock()
		defer w.mu.Unlock()
		return map[string]string{"rx": strconv.FormatUint(w.there, 10), "last-handshake": "1s"}
	}
	return w
}

// behindRouterOS is a lab whose router is agentless, on machines of their own. In the end the router has the
// configuration that it had.
func behindRouterOS(t *testing.T, d *routeros.Device, w *wire) (*Lab, *journal.Journal, string) {
	t.Helper()
	top, err := TopologyNamed("forward")
	must(t, err)
	dir := t.TempDir()
	j, err := journal.Create(dir, "me", "")
	must(t, err)
	nodes := []*Node{{
		Name: "client",
		Agent: host.Inside(t.Context(),
			map[string]host.Handler{"tunnel/wireguard-kernel": w.serve}),
	},
		{Name: "server", Agent: host.Inside(t.Context(), nil)},
		{Name: "router", Host: d, Driver: driver.RouterOS{}, Facts: record.NodeFacts{CPUs: record.CPUsOwn}}}
	l, err := Assemble("a", top, nodes, Parts{Knobs: knob.All(), Tunnels: tunnel.All()}, j)
	must(t, err)
	before := d.Config()
	t.Cleanup(func() {
		expect.Same(t, "configuration", before, d.Config())
	})
	l.regularly = func(func(context.Context) error) { d.Each = 0 } // in place of keeping in touch
	return l, j, dir
}

// TestTunnelEndsOnAnAgentlessRouter: it is laid by the router's driver, without a preshared key, behind a
// guard that would remove it; other settings come and go meanwhile; taken down, it leaves nothing.
func TestTunnelEndsOnAnAgentlessRouter(t *testing.T) {
	t.Parallel()
	d := routeros.New()
	w := onWire(t, d)
	l, j, _ := behindRouterOS(t, d, w)
	ctx := t.Context()
	led := 0
	l.lead = func(_ context.Context, _ int, agentless *agentlessEnd) (func(context.Context) error, error) {
		led++
		agentless.state.Behind[l.plan.behind(1, 1)[0]] = l.plan.link(1, 1)[0].Addr()
		return func(context.Context) error { led--; return nil }, nil
	}
	p, err := l.Path(ctx, TunnelSpec{Kind: "wireguard", MTU: 1380})
	must(t, err)
	made := d.Config()
	wg := made["/interface/wireguard"][1]
	peer := made["/interface/wireguard/peers"][3]
	want := map[string]string{"interface": "chokepoint-tun1", "public-key": nearKey,
		"allowed-address": "198.19.1.1/32,2001:2:0:101::1/128", "endpoint-address": "198.18.1.1",
		"endpoint-port": "51821", "comment": "chokepoint tunnel tun1"}
	diff := cmp.Diff(want, peer)
	if diff != "" || wg["mtu"] != "1380" || wg["listen-port"] != "51821" {
		t.Errorf("interface %v, peer (-want +got):\n%s", wg, diff)
	}

	r := made["/ip/route"][3]
	if r["dst-address"] != "198.19.65.2/32" || r["gateway"] != "198.18.2.2" {
		t.Errorf("route behind: got %v", r)
	}

	if w.public != wg["public-key"] || w.outer != "198.18.1.2:51821" ||
		!bytes.Equal(w.secret, make([]byte, 32)) ||
		!slices.Equal(w.allowed, []string{"198.19.1.2/32", "2001:2:0:101::2/128", "198.19.65.2/32",
			"2001:2:0:201::2/128"}) {
		t.Errorf("the near end was told %q at %q, secret %d, allowed %v", w.public, w.outer, len(w.secret),
			w.allowed)
	}

	if p.Resolved != "wireguard-kernel" || p.Tunnel.MTU() != 1380 || led != 1 {
		t.Errorf("got %+v, mtu %d, led %d", p, p.Tunnel.MTU(), led)
	}

	if c, err := p.Tunnel.Counters(ctx, false); err != nil || c.Implementation != "kernel" {
		t.Errorf("counters: got %+v, %v", c, err)
	}

	firewall := record.Setting{Knob: "firewall", Node: "router", Value: "10"}
	for _, settings := range [][]record.Setting{{firewall}, nil} {
		must(t, errors.Join(l.Reconcile(ctx, settings), l.StopIdleLoad(ctx)))
		script := d.Config()["/system/script"][0]["source"]
		if len(d.Config()["/interface/wireguard/peers"]) != 4 ||
			!strings.Contains(script, "/interface/wireguard/remove") {
			t.Errorf("with settings %v the tunnel is gone, or not guarded: %s", settings, script)
		}
	}

	if err := errors.Join(l.Close(ctx), j.Close()); err != nil || led != 0 {
		t.Errorf("close: %v, led %d", err, led)
	}
}

// TestAgentlessTunnelThatFails: whatever step fails, all that was made is undone, and the error says what may
// be missing.
func TestAgentlessTunnelThatFails(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"/interface/wireguard/add", "/ip/address/add", "proplist=public-key where",
		"/interface/wireguard/peers/add", "rx-packet", "start-time=startup", "nothing arrives"} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			d := routeros.New()
			w := onWire(t, d)
			l, j, _ := behindRouterOS(t, d, w)
			d.Broken = step
			w.dead = step == "nothing arrives"
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			_, err := l.Path(ctx, TunnelSpec{Kind: "wireguard"})
			if err == nil || errors.Is(err, ErrDirty) ||
				strings.Contains(err.Error(), routeros.WireGuardSecret) ||
				!strings.Contains(check.HintOf(err), "the firewall of router must let in UDP port 51821") {
				t.Errorf("got %v, hint %q", err, check.HintOf(err))
			}

			d.Broken = ""
			must(t, errors.Join(l.Close(t.Context()), j.Close()))
		})
	}
}

// mute is a router that does not answer a command with some words in it.
type mute struct {
	*routeros.Device
	words string
	asked func()
}

func (m mute) Start(ctx context.Context, c host.Command) (host.Process, error) {
	if !strings.Contains(c.Path, m.words) {
		return m.Device.Start(ctx, c)
	}

	m.asked()
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

// TestAgentlessTunnelThatIsGivenUp: whoever lays it need not wait for a router that does not answer.
func TestAgentlessTunnelThatIsGivenUp(t *testing.T) {
	t.Parallel()
	d := routeros.New()
	l, j, _ := behindRouterOS(t, d, onWire(t, d))
	ctx, cancel := context.WithCancel(t.Context())
	l.nodes["router"].Host = mute{d, "proplist=public-key where", cancel}
	begun := time.Now()
	_, err := l.Path(ctx, TunnelSpec{Kind: "wireguard"})
	took := time.Since(begun)
	if err == nil || took > 20*time.Second {
		t.Errorf("got %v after %v", err, took)
	}

	must(t, errors.Join(l.Close(t.Context()), j.Close()))
}

// TestAgentlessTunnelThatStays: what the router does not remove keeps its guard and its place in the journal,
// and nothing is measured until it is gone.
func TestAgentlessTunnelThatStays(t *testing.T) {
	t.Parallel()
	d := routeros.New()
	l, j, _ := behindRouterOS(t, d, onWire(t, d))
	_, err := l.Path(t.Context(), TunnelSpec{Kind: "wireguard"})
	must(t, err)
	d.Broken = "/interface/wireguard/remove"
	expect.Error(t, "clear", l.Clear(t.Context()), ErrDirty)
	expect.Error(t, "settle", l.Reconcile(t.Context(), nil), ErrDirty)
	d.Broken = ""
	must(t, errors.Join(l.Reconcile(t.Context(), nil), l.Close(t.Context()), j.Close()))
}

// TestRestoreRemovesAnAgentlessTunnel of a run that was killed, also in the middle of laying it, and says so
// where the guard has done it.
func TestRestoreRemovesAnAgentlessTunnel(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, broken, want string }{{"whole", "", "put back tunnel_end=none"},
		{"without a peer", "/interface/wireguard/peers/add", "already as before"},
		{"undone by the guard", "", "already as before: tunnel_end=none"}} {
		t.Run(tt.name, func(t *testing.T) {
			d := routeros.New()
			l, j, dir := behindRouterOS(t, d, onWire(t, d))
			d.Broken = tt.broken
			_, err := l.Path(t.Context(), TunnelSpec{Kind: "wireguard"})
			if (err != nil) != (tt.broken != "") {
				t.Fatal(err)
			}

			left := j.Close()
			d.Broken = ""
			if tt.name == "undone by the guard" {
				d.Pass(2 * time.Minute)
			}

			stale, _, err := journal.FindStale(dir, nil)
			if err != nil || left == nil || len(stale) != 1 {
				t.Fatalf("journal: got %v, %v, %v", stale, left, err)
			}

			text, _ := os.ReadFile(filepath.Join(dir, "me.jsonl"))
			if strings.Contains(string(text), routeros.WireGuardSecret) ||
				!strings.Contains(string(text), nearKey) && tt.broken == "" {
				t.Errorf("journal: %s", text)
			}

			o := reached(t, &Node{
				Name:   "router",
				Host:   d,
				Driver: driver.RouterOS{},
				Facts:  record.NodeFacts{CPUs: record.CPUsOwn},
			})
			o.of.Entries = append(o.of.Entries, stale[0].Entries...)
			said := ""
			for _, e := range stale[0].Entries {
				if e.Kind != journal.KindSetting {
					continue
				}

				text, err := o.putBack(t.Context(), e)
				must(t, err)
				said += text + "\n"
			}

			for _, e := range stale[0].Entries {
				if e.Kind == journal.KindGuard {
					must(t, o.dismiss(t.Context(), e))
				}
			}

			if tt.broken == "" && !strings.Contains(said, tt.want+" on router") {
				t.Errorf("got %q, want %q", said, tt.want)
			}
		})
	}
}

// TestCheckAgentlessTunnel: the kernel's WireGuard is laid, what it cannot be is skipped with the reason, and
// where no guard may be left also with what is typed by hand.
func TestCheckAgentlessTunnel(t *testing.T) {
	d := routeros.New()
	l, _, _ := behindRouterOS(t, d, onWire(t, d))
	const steps = "; by hand: /interface/wireguard/add name=chokepoint-wg "
	ask := func(kind string, want check.State, reason string) {
		t.Helper()
		a := l.CheckTunnel(t.Context(), TunnelSpec{Kind: kind})
		if a.State != want || !strings.Contains(a.Reason, reason) {
			t.Errorf("%s: got %v (%s), want %v: %s", kind, a.State, a.Reason, want, reason)
		}
	}
	ask("wireguard", check.Yes, "kernel implementation")
	ask("wireguard-kernel", check.Yes, "")
	ask("wireguard-userspace", check.No, "node router has no agent to hold a tunnel's end"+steps)
	ask("esp", check.No, "node router has no agent to hold a tunnel's end")
	ask("openvpn", check.No, "node router has no agent to hold a tunnel's end")
	d.Tables["/system/device-mode"][0]["scheduler"] = "no"
	ask("wireguard", check.No, "scheduler=no: no guard can be left there, so nothing is set")
	ask("wireguard", check.No, steps)
	d.Tables["/system/device-mode"][0]["scheduler"] = "yes"
}
