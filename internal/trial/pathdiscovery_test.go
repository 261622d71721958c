package trial

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// throughMTU are two ends with a path of an MTU between; 0 lets nothing pass. asked counts the packets that
// were tried. Datagrams come from the source that is given, where an echo is to hear one alone.
func throughMTU(t *testing.T, mtu int, at string, asked *int, source ...netip.Addr) way {
	t.Helper()
	var hears netip.Addr
	echo := func(_ context.Context, s host.Session) error {
		var at agent.EchoAt
		if err := s.Recv(&at); err != nil {
			return err
		}

		hears = at.From
		if err := s.Send(struct{}{}); err != nil {
			return err
		}

		for s.Recv(nil) == nil {
		}

		return nil
	}
	reach := func(_ context.Context, s host.Session) error {
		var r agent.Reach
		if err := s.Recv(&r); err != nil {
			return err
		}

		out := agent.Reached{Note: "it did not return"}
		if len(r.Sizes) == 0 {
			out.Device = "eth0"
		}

		for _, size := range r.Sizes {
			*asked++
			if size <= mtu && (!hears.IsValid() || slices.Contains(source, hears)) {
				out.Back = append(out.Back, size)
			}
		}

		return s.Send(out)
	}
	end := func(name string) traffic.End {
		a := host.Inside(context.Background(), map[string]host.Handler{agent.VerbEcho: echo,
			agent.VerbReach: reach})
		t.Cleanup(func() { a.Close() })
		addr := netip.MustParseAddr(at)
		return traffic.End{Node: name, Agent: a, Addr: addr, Target: addr}
	}
	return way{near: end("client"), far: end("server"), opener: "near"}
}

func TestDiscoverMTU(t *testing.T) {
	for _, tt := range []struct {
		at    string
		mtu   int
		tried int // at most
	}{
		{"192.0.2.1", 1500, 3}, {"192.0.2.1", 1492, 14}, {"192.0.2.1", 576, 14}, {"192.0.2.1", 1501, 20},
		{"192.0.2.1", 9000, 20}, {"192.0.2.1", 65535, 20}, {"2001:db8::1", 1280, 14}, {"2001:db8::1", 65536,
			20}, {"2001:db8::1", 1500, 3},
	} {
		asked := 0
		got, err := throughMTU(t, tt.mtu, tt.at, &asked).discoverMTU(t.Context())
		if err != nil || got != tt.mtu || asked > tt.tried {
			t.Errorf("%s: got %d, %v with %d packets, want %d with %d at most", tt.at, got, err, asked,
				tt.mtu, tt.tried)
		}
	}

	if got, err := throughMTU(t, 0, "192.0.2.1", new(int)).discoverMTU(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "did not return") {
		t.Errorf("a path that is blocked: got %d, %v, want why", got, err)
	}
}

// TestTheNearEndHearsTheFarOneAlone, where that comes from its own address; behind a translation that says
// another, the near end hears everybody who knows the run's key.
func TestTheNearEndHearsTheFarOneAlone(t *testing.T) {
	target := netip.MustParseAddr("192.0.2.1")
	other := netip.MustParseAddr("192.0.2.9")
	for source, want := range map[netip.Addr]netip.Addr{target: target, other: {}} {
		w := throughMTU(t, 1500, target.String(), new(int), source)
		x := &discoveredPath{}
		err := w.open(t.Context(), "far", x)
		if err != nil || x.mtu != 1500 || x.hears != want || w.near.Hears != want {
			t.Errorf("datagrams from %s: got %v, MTU %d, hears %s, want %s", source, err, x.mtu, x.hears,
				want)
		}
	}
}

// TestEndsTellTheDeviceOfThePath: each machine's own, for its fingerprint.
func TestEndsTellTheDeviceOfThePath(t *testing.T) {
	w := throughMTU(t, 1500, "192.0.2.1", new(int))
	got := w.deviceTo(t.Context(), w.far, w.near)
	if got != "eth0" {
		t.Errorf("device of the far end: got %q, want what it tells", got)
	}

	c := &Campaign{discovered: map[int]*discoveredPath{4: {device: [2]string{"eno1", ""}},
		6: {device: [2]string{"wg0", "eth0"}}}}
	l := &lab.Lab{Topology: record.Topology{Near: "client", Far: "server"}}
	e := record.Environment{Facts: map[string]string{"device:eno1:driver": "igc"}}
	if err := c.ofMachine(t.Context(), l, &lab.Node{Name: "client"}, &e); err != nil ||
		e.Facts["path_ipv4:device"] != "eno1" || e.Facts["path_ipv6:device"] != "wg0" {
		t.Errorf("fingerprint of the near end: got %v, %v, want eno1 and wg0", e.Facts, err)
	}
}

func TestSlowerMachineIsTheCeiling(t *testing.T) {
	ours := []record.Ceiling{{Kind: "tcp", Value: 10, Unit: "bit/s"}, {Kind: "udp", Value: 5, Unit: "pps"}}
	theirs := []record.Ceiling{{Kind: "udp", Value: 9, Unit: "pps"}, {Kind: "tcp", Value: 2, Unit: "bit/s"}}
	var got []float64
	for _, c := range slower(ours, theirs) {
		got = append(got, c.Value)
	}

	if !slices.Equal(got, []float64{2, 5}) || ours[0].Value != 10 {
		t.Errorf("ceilings: got %v, want 2 of the peer and 5 of ours", got)
	}
}

func TestDescribeRoute(t *testing.T) {
	one := netip.MustParseAddr("192.0.2.1")
	for name, tt := range map[string]struct {
		route          *agent.FoundRoute
		facts, missing map[string]string
	}{
		"not looked for": {nil, map[string]string{},
			map[string]string{"p:routers": "the path was not explored from this end"}},
		"no router": {&agent.FoundRoute{Reached: true}, map[string]string{"p:routers": "0"},
			map[string]string{}},
		"one silent": {&agent.FoundRoute{Reached: true, Routers: []netip.Addr{one, {}}},
			map[string]string{"p:routers": "2", "p:route": "192.0.2.1 ?"}, map[string]string{}},
		"not reached": {&agent.FoundRoute{Routers: []netip.Addr{one}}, map[string]string{},
			map[string]string{"p:routers": "no datagram with a short time to live arrived; 1 routers named " +
				"themselves"}},
	} {
		e := record.Environment{Facts: map[string]string{}, Missing: map[string]string{}}
		(&Campaign{}).describeRoute(&e, "p:", tt.route)
		diff := cmp.Diff([]map[string]string{tt.facts, tt.missing}, []map[string]string{e.Facts,
			e.Missing})
		if diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestVirtualCards(t *testing.T) {
	for name, tt := range map[string]struct {
		facts map[string]string
		want  bool
	}{
		"none":  {map[string]string{"device:lan:mtu": "1500"}, true},
		"guest": {map[string]string{"device:eth0:driver": "virtio_net"}, true},
		"PC":    {map[string]string{"device:eno1:driver": "igc", "device:docker0:mtu": "1500"}, false},
		"PC with tap": {map[string]string{"device:eno1:driver": "r8169", "device:x:driver": "virtio_net"},
			false},
	} {
		got := virtual(tt.facts)
		if got != tt.want {
			t.Errorf("%s: got %v, want %v", name, got, tt.want)
		}
	}
}
