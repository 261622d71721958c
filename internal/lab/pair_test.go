package lab

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/pair"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/expect"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// TestEndsOfAPair: where each end binds and is found, behind translations on either side too.
func TestEndsOfAPair(t *testing.T) {
	a := netip.MustParseAddr
	at := func(text string) netip.AddrPort { return netip.AddrPortFrom(a(text), 1) }
	type want struct {
		near, far Meeting
		why       bool
	}
	for _, tt := range []struct {
		name          string
		local, remote string // as the near end sees the connection
		about         About
		ip            int
		want          want
	}{
		{"plain", "192.0.2.1", "198.51.100.2", About{Local: a("198.51.100.2"), Remote: a("192.0.2.1")}, 4,
			want{
				near: Meeting{a("192.0.2.1"), a("192.0.2.1")},
				far: Meeting{a("198.51.100.2"),
					a("198.51.100.2")},
			}},
		{"both translated", "10.0.0.1", "198.51.100.2", About{
			Local:  a("192.168.0.2"),
			Remote: a("203.0.113.9"),
		}, 4,
			want{
				near: Meeting{a("10.0.0.1"), a("203.0.113.9")},
				far: Meeting{a("192.168.0.2"),
					a("198.51.100.2")},
			}},
		{"one link only", "fe80::1", "fe80::2", About{Local: a("fe80::2"), Remote: a("fe80::1")}, 6,
			want{why: true}},
		{"other version, loopback", "127.0.0.1", "127.0.0.1", About{
			Local:     a("127.0.0.1"),
			Remote:    a("127.0.0.1"),
			Addresses: []netip.Addr{a("2001:db8::1"), a("::1")},
		}, 6,
			want{near: Meeting{a("::1"), a("::1")}, far: Meeting{a("::1"), a("::1")}}},
		{"other version, none", "127.0.0.1", "127.0.0.1", About{
			Local:  a("127.0.0.1"),
			Remote: a("127.0.0.1"),
		}, 6, want{why: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := &peering{visit: &pair.Visit{Local: at(tt.local), Remote: at(tt.remote)}, about: tt.about}
			ends, err := p.endsOf(context.Background(), at(tt.remote).String(), tt.ip)
			got := want{ends[0], ends[1], err != nil}
			if tt.want.why {
				got.near = Meeting{}
				got.far = Meeting{}
			}

			diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(want{}),
				cmp.Comparer(func(a, b netip.Addr) bool { return a == b }))
			if diff != "" {
				t.Errorf("ends (-want +got): %v\n%s", err, diff)
			}
		})
	}
}

// TestPairChangesNothing: every setting is refused but the one that real wires have by nature.
func TestPairChangesNothing(t *testing.T) {
	l, err := newPair("pair", Parts{}, "", nil)
	must(t, err)
	for _, name := range l.Nodes() {
		l.nodes[name] = untouched(name, "")
	}

	ctx := context.Background()
	wire := record.Setting{Knob: "offload", Node: "router", Value: "wire"}
	if a := l.CheckSetting(ctx, wire); a.State != check.Yes {
		t.Errorf("offload=wire: got %v, want yes", a)
	}

	for _, s := range []record.Setting{{Knob: "offload", Node: "client", Value: "super"},
		{Knob: "nat", Node: "router", Value: "masquerade"},
		{Knob: "sysctl:net.ipv4.tcp_ecn", Node: "client", Value: "1"}, {
			Knob:  "cpu_quota",
			Node:  HostNode,
			Value: "25%",
		}} {
		a := l.CheckSetting(ctx, s)
		if a.State != check.No || a.Reason != pairFixed {
			t.Errorf("%v: got %v, want a no with the reason", s, a)
		}
	}

	if a := l.CheckTunnel(ctx, TunnelSpec{Kind: "wireguard"}); a.State != check.No {
		t.Errorf("tunnel: got %v, want no", a)
	}

	if a := l.CheckTunnel(ctx, TunnelSpec{Kind: "none"}); a.State != check.Yes {
		t.Errorf("no tunnel: got %v, want yes", a)
	}

	if err := l.Reconcile(ctx, []record.Setting{wire}); err != nil || len(l.settings) != 0 {
		t.Errorf("settle offload=wire: got %v and %d settings, want nothing done", err, len(l.settings))
	}
}

// TestTagsNeedTheKey: a trial's tag differs by run and by name, and shows neither.
func TestTagsNeedTheKey(t *testing.T) {
	of := func(key string) *Lab {
		return &Lab{supply: supply{network: &network{tag: tagger(host.SecretFrom([]byte(key)))}}}
	}
	a := of("one")
	b := of("two")
	again := a.Tag("r/1")
	if a.Tag("r/1") != again || a.Tag("r/1") == a.Tag("r/2") ||
		a.Tag("r/1") == b.Tag("r/1") || len(a.Tag("r/1")) != 64 {
		t.Errorf("tags: got %q, %q, %q, want 64 digits, another for each name and key", a.Tag("r/1"),
			a.Tag("r/2"), b.Tag("r/1"))
	}

	expect.Same(t, "in a network of its own", "r/1", (&Lab{}).Tag("r/1"))
}

// TestTranslated: whose address is translated on the way, as far as that can be told.
func TestTranslated(t *testing.T) {
	a := netip.MustParseAddr
	for _, tt := range []struct {
		name                       string
		near, seen, far, reachedAt string
		control                    int // version of IP of the control connection
		want                       string
	}{
		{"plain", "192.0.2.1", "192.0.2.1", "198.51.100.2", "198.51.100.2", 4, "none"},
		{"private, seen as itself", "192.168.1.10", "192.168.1.10", "203.0.113.10", "203.0.113.10", 4, "none"},
		{"near", "192.168.1.10", "203.0.113.9", "203.0.113.10", "203.0.113.10", 4, "near"},
		{"far", "192.0.2.1", "192.0.2.1", "0.0.0.0", "203.0.113.10", 4, "far"},
		{"both", "10.0.0.1", "192.0.2.9", "192.168.0.2", "203.0.113.10", 4, "near far"},
		{"other version", "192.0.2.1", "192.0.2.1", "198.51.100.2", "198.51.100.2", 6, ""},
		{"other version, private", "192.168.1.10", "192.168.1.10", "198.51.100.2", "198.51.100.2", 6, "near"},
	} {
		l := &Lab{supply: supply{network: &network{
			farOpens: tt.control,
			ends: map[int][2]Meeting{
				4: {{a(tt.near), a(tt.seen)}, {a(tt.far), a(tt.reachedAt)}}},
		}}}
		expect.Same(t, tt.name, tt.want, l.Translated(4))
	}
}

// TestALostPeerIsTold: Reconnect cannot meet it again, and Lost says why; once it is there again it does not.
// The lab stays one whose network is not its own.
func TestALostPeerIsTold(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	code := pair.NewCode()
	address := "127.0.0.1:0"
	about := func(_ context.Context, s host.Session) error {
		local := netip.MustParseAddr("127.0.0.1")
		return s.Send(About{Local: local, Remote: local, Ports: [2]int{1, 3}})
	}
	peer := func() (leave func()) {
		ln, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
		must(t, err)
		address = ln.Addr().String()
		serving, stop := context.WithCancel(ctx)
		var all sync.WaitGroup
		all.Go(func() {
			l := pair.Listener{Code: code, Idle: time.Minute, Tell: func(netip.AddrPort, string) {}}
			_ = l.Serve(serving, ln, func(ctx context.Context, v *pair.Visit) error { // ends when told
				return host.Serve(ctx, v, map[string]host.Handler{VerbAbout: about})
			})
		})
		return func() { stop(); all.Wait() }
	}
	leave := peer()
	l, err := Pair{ID: "pair", Address: address, Code: code}.Up(ctx)
	must(t, err)
	leave()
	for range 2 {
		fresh, _ := l.Reconnect(ctx)
		if fresh || l.Lost() == nil || l.OwnNetwork() {
			t.Errorf("peer away: got fresh %v, lost %v, own network %v, want it lost", fresh, l.Lost(),
				l.OwnNetwork())
		}
	}

	leave = peer()
	if fresh, _ := l.Reconnect(ctx); !fresh || l.Lost() != nil {
		t.Errorf("peer back: got fresh %v and lost %v, want it met", fresh, l.Lost())
	}

	must(t, l.Close(ctx))
	leave()
}

// TestAThirdPartyThatIsGoneIsTold, though nothing of ours runs there that could be lost.
func TestAThirdPartyThatIsGoneIsTold(t *testing.T) {
	ctx := t.Context()
	listen := func(address string) net.Listener {
		ln, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
		must(t, err)
		return ln
	}
	ln := listen("127.0.0.1:0")
	address := ln.Addr().String()
	l, err := ThirdParty{ID: "pair", Address: address}.Up(ctx)
	must(t, err)
	_, err = l.Node(ctx, l.Topology.Far)
	must(t, err)
	for _, there := range []bool{true, false, true} {
		if !there {
			ln.Close()
		} else if l.Lost() != nil {
			ln = listen(address)
		}

		_, found := l.Reconnect(ctx)
		if (l.Lost() == nil) != there || (found == nil) != there {
			t.Errorf("there %v: got lost %v, found %v", there, l.Lost(), found)
		}
	}

	ln.Close()
}
