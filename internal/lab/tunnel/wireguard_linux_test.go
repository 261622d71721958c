package tunnel

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/expect"
)

// TestTunnelsComeUpCarryAndGo is the conformance of every kind of tunnel that this kernel has, over both IP
// versions outside and inside.
func TestTunnelsComeUpCarryAndGo(t *testing.T) {
	for _, tun := range All() {
		for _, outer := range [][2]string{{"198.18.0.1", "198.18.0.2"}, {"2001:2::1", "2001:2::2"}} {
			t.Run(tun.Name()+"/"+outer[0], func(t *testing.T) {
				t.Parallel()
				near, far := newPair(t)
				a, b := ends(near, far, outer)
				ctx := context.Background()
				c := tun.Check(ctx, a, b)
				if c.State != check.Yes {
					k, _ := tun.(kind)
					_, kernels := k.nodeSide.(esp)
					_, program := k.nodeSide.(openVPN)
					lacks := kernels || program || tun.Name() == nameKernel
					if !lacks ||
						c.State != check.No || c.Reason == "" || c.Hint == "" {
						t.Errorf("check says %+v, want yes, or no with reason and hint for what is the "+
							"kernel's or a program's", c)
					}

					return
				}

				comeUpCarryAndGo(t, tun, near, far, a, b)
			})
		}
	}
}

func comeUpCarryAndGo(t *testing.T, tun Tunnel, near, far *testNode, a, b End) {
	t.Helper()
	ctx := context.Background()
	for round := range 2 { // what is taken down can be laid again
		start := time.Now()
		p, err := tun.Up(ctx, a, b, Spec{Device: "wg7", MTU: 1400, Port: 51000})
		must(t, err)
		t.Logf("round %d: up in %v", round, time.Since(start))
		if p.MTU() != 1400 || ask0[int](t, near, "test/mtu", "wg7") != 1400 {
			t.Errorf("mtu is %d, want 1400 at both ends", p.MTU())
		}

		carries(t, p, near, far)
		if _, err := tun.Up(ctx, a, b, Spec{Device: "wg7", Port: 51001}); err == nil ||
			!strings.Contains(err.Error(), "exists already") {
			t.Errorf("laying it twice gives %v, want that the device exists already", err)
		}

		carries(t, p, near, far)
		for range 2 {
			must(t, p.Down(ctx))
		}

		if _, err := p.Counters(ctx, false); err == nil {
			t.Error("counters of a tunnel that is down are read, want an error")
		}

		wantNoDevice(t, near, far)
		said := near.stderr.String() + far.stderr.String()
		if said != "" {
			t.Errorf("the nodes said %q, want silence", said)
		}
	}
}

func carries(t *testing.T, p Path, near, far *testNode) {
	t.Helper()
	ctx := context.Background()
	before, err := p.Counters(ctx, false)
	must(t, err)
	if !p.(*path).mute && (before.Handshake < 0 || before.Handshake > int64(time.Minute)) {
		t.Errorf("last handshake was %v ago, want less than a minute", time.Duration(before.Handshake))
	}

	const size = 2 << 20
	transfer(t, near, far, "198.18.9.2", size)
	transfer(t, far, near, "2001:2:0:9::1", size)
	after, err := p.Counters(ctx, false)
	must(t, err)
	for name, moved := range map[string]uint64{"sent": after.Sent - before.Sent,
		"received": after.Received - before.Received} {
		if moved < size || moved > 2*size {
			t.Errorf("%d bytes %s are counted for %d of data", moved, name, size)
		}
	}

	if p.Devices()[0] != "wg7" || after.Implementation == "" {
		t.Errorf("devices are %v, implementation %q", p.Devices(), after.Implementation)
	}

	for _, behind := range []string{"198.18.8.1", "2001:2:0:8::1"} {
		dev := ask0[string](t, near, "test/route", netip.MustParseAddr(behind))
		if dev != "wg7" {
			t.Errorf("what lies behind the far end, %s, is reached by %s, want wg7", behind, dev)
		}
	}
}

// TestTunnelsStandBesideEachOther lays two between the same nodes: takes one down, and uses the other.
func TestTunnelsStandBesideEachOther(t *testing.T) {
	for _, kinds := range [][2]Tunnel{{WireGuardUserspace(), WireGuardUserspace()}, {ESP(), espKinds()[2]}} {
		t.Run(kinds[0].Name(), func(t *testing.T) {
			near, far, a, b := newEndsFor(t, kinds[0])
			ctx := context.Background()
			first, err := kinds[0].Up(ctx, a, b, Spec{Device: "wg7", Port: 51001})
			must(t, err)
			a2, b2 := a, b
			a2.Inner, b2.Inner = []netip.Prefix{netip.MustParsePrefix("198.18.10.1/30")},
				[]netip.Prefix{netip.MustParsePrefix("198.18.10.2/30")}
			a2.Routes, b2.Routes = nil, nil
			second, err := kinds[1].Up(ctx, a2, b2, Spec{Device: "wg8", Port: 51002})
			must(t, err)
			transfer(t, near, far, "198.18.10.2", 1<<20)
			carries(t, first, near, far)
			must(t, second.Down(ctx))
			carries(t, first, near, far)
			must(t, first.Down(ctx))
			wantNoDevice(t, near)
		})
	}
}

func TestImplausibleTunnelsAreRefused(t *testing.T) {
	end := func(outer, inner, route string) End {
		return End{
			Node:   "node at " + outer,
			Outer:  netip.MustParseAddr(outer),
			Inner:  []netip.Prefix{netip.MustParsePrefix(inner)},
			Routes: []netip.Prefix{netip.MustParsePrefix(route)},
		}
	}
	good := end("198.18.0.1", "198.18.9.1/30", "198.18.8.0/24")
	tests := []struct {
		name string
		far  End
		spec Spec
		want string
	}{
		{"mixed outer", end("2001:2::1", "198.18.9.2/30", "198.18.7.0/24"), Spec{}, "not of one IP version"},
		{"loop", end("198.18.8.1", "198.18.9.2/30", "198.18.7.0/24"), Spec{}, "into the tunnel itself"},
		{"small for IPv6", end("198.18.0.2", "2001:2::1/64", "198.18.7.0/24"), Spec{MTU: 1200}, "needs 1280"},
		{"mtu", end("198.18.0.2", "198.18.9.2/30", "198.18.7.0/24"), Spec{MTU: 100}, "mtu 100"},
		{"no inner", End{Node: "x", Outer: netip.MustParseAddr("198.18.0.2")}, Spec{}, "no inner address"},
	}
	for _, tt := range tests {
		_, err := WireGuardUserspace().Up(context.Background(), good, tt.far, tt.spec)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error is %v, want %q in it", tt.name, err, tt.want)
		}
	}
}

func FuzzParsePublic(f *testing.F) {
	f.Add(spellPublic(kernel.Key{1}))
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		k, err := parsePublic(text)
		if err != nil && k != (kernel.Key{}) {
			t.Error("an error comes with a key, want none")
		}

		if err == nil {
			if again, err := parsePublic(spellPublic(k)); err != nil || again != k {
				t.Errorf("a key does not survive its spelling: %v", err)
			}
		}
	})
}

func FuzzLastHandshake(f *testing.F) {
	f.Add([]byte("public_key=00\nlast_handshake_time_sec=1700000000\nlast_handshake_time_nsec=5\n"))
	f.Fuzz(func(t *testing.T, answer []byte) {
		at := lastHandshake(answer)
		if !at.IsZero() && !strings.Contains(string(answer), "last_handshake_time_") {
			t.Errorf("a handshake at %v is read from an answer without one", at)
		}
	})
}

func TestTunnelTellsWhatItResolvedTo(t *testing.T) {
	_, _, a, b := newEnds(t)
	p, err := WireGuard().Up(context.Background(), a, b, Spec{})
	must(t, err)
	defer p.Down(context.Background())
	got := p.(interface{ Implementation() string }).Implementation()
	want := nameUserspace
	if WireGuardKernel().Check(context.Background(), a, b).State == check.Yes {
		want = nameKernel
	}

	if got != want || p.MTU() != DefaultMTU {
		t.Errorf("resolved to %q with mtu %d, want %q with %d", got, p.MTU(), want, DefaultMTU)
	}
}

// TestQueueOfATunnelInUserspace: the device of each end holds as many packets as are wanted, for each kind
// whose packets pass through a process.
func TestQueueOfATunnelInUserspace(t *testing.T) {
	near, far, a, b := newEnds(t)
	for _, kind := range []Tunnel{WireGuardUserspace(), OpenVPN()} {
		c := kind.Check(context.Background(), a, b)
		if c.State != check.Yes {
			t.Logf("%s: not here: %s", kind.Name(), c.Reason)
			continue
		}

		p, err := kind.Up(context.Background(), a, b, Spec{Device: "wg7", Queue: 7})
		must(t, err)
		for _, node := range []host.Agent{near, far} {
			got := ask0[int](t, node, "test/queue", "wg7")
			if got != 7 {
				t.Errorf("%s: the device holds %d packets, want 7", kind.Name(), got)
			}
		}

		must(t, p.Down(context.Background()))
	}
}

func TestTunnelDeviceGoesWithItsSession(t *testing.T) {
	near, far, a, b := newEnds(t)
	p, err := WireGuardUserspace().Up(context.Background(), a, b, Spec{})
	must(t, err)
	for _, e := range p.(*path).ends {
		must(t, e.session.Close()) // as when the controller dies
	}

	for _, n := range []*testNode{near, far} {
		expect.Soon(t, 5*time.Second, "devices after the sessions ended", []string{"lo", "wan"},
			func() []string { return ask0[[]string](t, n, "test/devices", struct{}{}) })
	}

	must(t, p.Down(context.Background()))
}

func TestTunnelWithADeadNodeEndsSoon(t *testing.T) {
	near, _, a, b := newEnds(t)
	p, err := WireGuardUserspace().Up(context.Background(), a, b, Spec{})
	must(t, err)
	near.kill()
	if _, err := p.Counters(context.Background(), false); !errors.Is(err, host.ErrUnreachable) {
		t.Errorf("counters at a dead node give %v, want ErrUnreachable", err)
	}

	start := time.Now()
	must(t, p.Down(context.Background()))
	took := time.Since(start)
	if took > 2*time.Second {
		t.Errorf("taking down took %v, want it soon", took)
	}
}

func TestTunnelThatCarriesNothingIsAnError(t *testing.T) {
	near, far := newPair(t)
	a, b := ends(near, far, [2]string{"198.18.0.1", "198.18.0.77"}) // nobody is there
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	_, err := WireGuardUserspace().Up(ctx, a, b, Spec{})
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(fmt.Sprint(err), "no handshake") {
		t.Errorf("laying it gives %v, want a deadline that names the state", err)
	}

	wantNoDevice(t, near, far)
}

func TestKernelTunnelWithoutKernelIsUnsupported(t *testing.T) {
	_, _, a, b := newEnds(t)
	if WireGuardKernel().Check(context.Background(), a, b).State == check.Yes {
		t.Skip("skip: this kernel has WireGuard")
	}

	if _, err := WireGuardKernel().Up(context.Background(), a, b, Spec{}); !errors.Is(err,
		host.ErrUnsupported) {
		t.Errorf("laying it gives %v, want ErrUnsupported", err)
	}
}

func TestTunnelKeepsItsSecrets(t *testing.T) {
	near, far, a, b := newEnds(t)
	text, secret := recordedLaying(t, WireGuardUserspace(), near, far, a, b, func() {})
	for _, form := range forms(secret) {
		if strings.Contains(text, form) {
			t.Errorf("the preshared key is in what was said, as %d characters", len(form))
		}
	}
}

// recordedLaying lays a tunnel, a second time in vain, and takes it down. It returns all that was said
// meanwhile, and the secret that both ends were given.
func recordedLaying(t *testing.T, kind Tunnel, near, far *testNode, a, b End, standing func()) (text string,
	secret []byte) {
	t.Helper()
	log := &recording{}
	a.Agent = recorder{near, log}
	b.Agent = recorder{far, log}
	p, err := kind.Up(t.Context(), a, b, Spec{})
	must(t, err)
	_, err = p.Counters(t.Context(), false)
	must(t, err)
	standing()
	_, err = kind.Up(t.Context(), a, b, Spec{})
	log.add(fmt.Sprint(err))
	must(t, p.Down(t.Context()))
	if len(log.secrets) != 2 || len(log.secrets[0]) != presharedSize || !bytes.Equal(log.secrets[0],
		log.secrets[1]) {
		t.Fatalf("%d secrets were sent, want the same one to both ends", len(log.secrets))
	}

	text = log.text.String() + near.stderr.String() + far.stderr.String()
	if !strings.Contains(text, "198.18.9.2/30") {
		t.Fatalf("the recording is %q, want the messages in it", text)
	}

	return text, log.secrets[0]
}

// forms returns how bytes could be written.
func forms(b []byte) []string {
	return []string{
		string(b), hex.EncodeToString(b), strings.ToUpper(hex.EncodeToString(b)),
		base64.StdEncoding.EncodeToString(b), base64.URLEncoding.EncodeToString(b),
		strings.Trim(fmt.Sprint(b), "[]"),
	}
}

// keeper is a device that keeps what it is configured with.
type keeper struct{ w kernel.WireGuard }

func (k *keeper) configure(w kernel.WireGuard) error {
	k.w = w
	return errors.New("configured")
}
func (*keeper) handshake() (time.Time, error) { return time.Time{}, nil }
func (*keeper) complaint() string             { return "" }
func (*keeper) close() error                  { return nil }

// script is a node's session whose controller says what it was given.
type script struct {
	host.Session
	log     *recording
	connect connect
}

func (s script) Send(v any) error { s.log.add(v); return nil }
func (s script) Recv(v any) error { *v.(*connect) = s.connect; return nil }
func (s script) RecvSecret() (host.Secret, error) {
	return host.NewSecret(presharedSize), nil
}
func (s script) SendSecret(host.Secret) error { return nil }

func TestNodeKeepsItsPrivateKey(t *testing.T) {
	var peer kernel.Key
	public, err := newKey(&peer)
	must(t, err)
	k := &keeper{}
	log := &recording{}
	e := &wireguardSide{device: k}
	e.own, err = newKey(&e.private)
	must(t, err)
	err = meet(t.Context(), script{log: log, connect: connect{Public: spellPublic(public)}}, e.public(),
		e.configure)
	if err == nil || err.Error() != "configured" {
		t.Fatalf("meeting gives %v, want what the device said", err)
	}

	if k.w.Private == (kernel.Key{}) || k.w.Peer != public || k.w.Preshared == (kernel.Key{}) {
		t.Error("the device was not given all keys")
	}

	if e.private != (kernel.Key{}) {
		t.Error("the private key was not overwritten")
	}

	log.add(k.w)
	log.add(fmt.Sprintf("%v %+v %#v %s %x %d", k.w, k.w, k.w, k.w.Private, k.w.Private, k.w.Private))
	for _, form := range forms(k.w.Private[:]) {
		if strings.Contains(log.text.String(), form) {
			t.Errorf("the private key is in what was said, as %d characters", len(form))
		}
	}
}
