package registry_test

import (
	"context"
	"math"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/pair"
	"github.com/chokepoint-lab/chokepoint/internal/labtest"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/expect"
	"github.com/chokepoint-lab/chokepoint/internal/probe"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/registry"
	"github.com/chokepoint-lab/chokepoint/internal/registry/node"
	"github.com/chokepoint-lab/chokepoint/internal/trial/watch"
)

// meetPeer has a peer wait at the loopback device, bound to 127.0.0.1 and other addresses, and meets it.
func meetPeer(t *testing.T, others ...netip.Addr) host.Agent {
	t.Helper()
	bind := append([]netip.Addr{netip.MustParseAddr("127.0.0.1")}, others...)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	code := pair.NewCode()
	listener := pair.Listener{Code: code}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- listener.Serve(ctx, ln, registry.Peer{
			Ports:   [2]int{20301, 20303},
			Version: "1.2",
			Bind:    bind,
		}.Serve)
	}()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("the peer ended with %v, want nil", err)
			}
		case <-time.After(10 * time.Second):
			t.Error("the peer did not end within 10 s")
		}
	})
	v, err := pair.Dial(labtest.Context(t), ln.Addr().String(), code)
	must(t, err)
	a := host.Connect(v)
	t.Cleanup(func() { a.Close() })
	return a
}

func TestPeerTellsWhatItIs(t *testing.T) {
	a := meetPeer(t)
	ctx := labtest.Context(t)
	var about lab.About
	must(t, a.Invoke(ctx, lab.VerbAbout, struct{}{}, &about))
	loop := netip.MustParseAddr("127.0.0.1")
	if about.Local != loop || about.Remote != loop || about.Ports != [2]int{20301, 20303} ||
		about.Version != "1.2" || !slices.Contains(about.Addresses, loop) {
		t.Errorf("about: got %+v, want the loopback address and the ports", about)
	}

	e, err := probe.Environment(ctx, a, "server")
	if err != nil || e.Facts["kernel"] == "" {
		t.Errorf("environment: got %v, %v, want the kernel among it", e.Facts, err)
	}

	if _, bound, err := a.Clock(ctx); err != nil || bound > int64(time.Second) {
		t.Errorf("clock: got a bound of %d ns, %v, want less than a second", bound, err)
	}

	w, err := watch.Start(ctx, a, "server", []string{"cpu"}, watch.Options{Options: probe.Options{
		Trace: true,
		Own:   []int{1},
	}})
	if err != nil {
		t.Fatalf("watch: %v", err)
	}

	if err := w.Close(); err != nil {
		t.Errorf("end the watch: %v", err)
	}
}

// TestPeerDoesNothingElse: what would execute, write or change something is not there to be asked for.
func TestPeerDoesNothingElse(t *testing.T) {
	a := meetPeer(t)
	verbs := []string{agent.VerbExec, agent.VerbArrange, agent.VerbCounters,
		agent.VerbRoute, "file/write"}
	for _, k := range node.Knobs() {
		verbs = append(verbs, host.Verb(host.FamilyKnob, k.Name()))
	}

	for _, t := range node.Tunnels() {
		verbs = append(verbs, host.Verb(host.FamilyTunnel, t.Name()))
	}

	for _, verb := range verbs {
		expect.Error(t, verb, a.Invoke(labtest.Context(t), verb, struct{}{}, nil), host.ErrUnknownVerb)
	}
}

// TestPeerTellsTheDeviceOfThePath: that to its controller, and to nobody else.
func TestPeerTellsTheDeviceOfThePath(t *testing.T) {
	a := meetPeer(t)
	loop := netip.MustParseAddr("127.0.0.1")
	var got agent.Reached
	err := a.Invoke(labtest.Context(t), agent.VerbReach, agent.Reach{From: loop, To: loop, Port: 20303}, &got)
	if err != nil || got.Device != "lo" {
		t.Errorf("got %+v, %v, want lo", got, err)
	}

	if err := a.Invoke(labtest.Context(t), agent.VerbReach, agent.Reach{
		From: loop,
		To:   netip.MustParseAddr("192.0.2.1"),
		Port: 20303,
	}, &got); err == nil {
		t.Error("to somebody else: got no error, want a refusal")
	}
}

func TestPeerBoundToTwoAddresses(t *testing.T) {
	second := netip.MustParseAddr("127.0.0.2")
	a := meetPeer(t, second)
	at := agent.EchoAt{Addr: second, Port: 20303, Tag: strings.Repeat("5", 64)}
	if err := a.Invoke(labtest.Context(t), agent.VerbEcho, at, nil); err != nil {
		t.Errorf("the second: %v", err)
	}

	at.Addr = second.Next()
	err := a.Invoke(labtest.Context(t), agent.VerbEcho, at, nil)
	const want = "bound to 127.0.0.1 127.0.0.2, not to 127.0.0.3"
	expect.Error(t, "a third", err, want)
}

func TestPeerRefusesWhatItIsNotFor(t *testing.T) {
	a := meetPeer(t)
	key := strings.Repeat("5", 64)
	loop := netip.MustParseAddr("127.0.0.1")
	other := netip.MustParseAddr("192.0.2.1")
	traffic := func(listen bool, peer netip.Addr, port int, tag, congestion string,
		cpus ...int) map[string]any {
		return map[string]any{"listen": listen, "side": "far", "addr": loop, "peer": peer, "port": port,
			"cpus": cpus,
			"load": record.Load{
				Protocol:   "tcp",
				Direction:  "up",
				Streams:    1,
				IP:         4,
				Tag:        tag,
				Congestion: congestion,
			}}
	}
	for _, tt := range []struct {
		name, verb string
		in         any
		want       string
	}{
		{"port of somebody else", "traffic/native", traffic(true, loop, 22, key, ""),
			"port 22 is not one of its data ports"},
		{"any port", "traffic/native", traffic(true, loop, 0, key, ""),
			"port 0 is not one of its data ports"},
		{"another address", "traffic/native", map[string]any{"listen": true, "addr": "127.0.0.2",
			"port": 20301, "load": record.Load{Tag: key}}, "it is bound to 127.0.0.1"},
		{"another address of the echo", agent.VerbEcho, agent.EchoAt{
			Addr: netip.IPv6Loopback(),
			Port: 20303,
			Tag:  key,
		}, "it is bound to 127.0.0.1"},
		{"the other version of IP", "traffic/native", map[string]any{"listen": true, "addr": "::",
			"port": 20301, "load": record.Load{Tag: key}}, "it is bound to 127.0.0.1"},
		{"no key", "traffic/native", traffic(true, loop, 20301, "guess", ""),
			"traffic without the run's key"},
		{"third party", "traffic/native", traffic(false, other, 20301, key, ""),
			"opening connections to others"},
		{"cores", "traffic/native", traffic(true, loop, 20301, key, "", 0), "chosen cores"},
		{"module", "traffic/native", traffic(true, loop, 20301, key, "no-such-control"),
			"the kernel has not got it ready"},
		{"latency without key", "traffic/echo", traffic(true, loop, 20302, "", ""),
			"traffic without the run's key"},
		{"requests without key", "traffic/responsiveness", traffic(true, loop, 20302, "", ""),
			"traffic without the run's key"},
		{"requests of others", "traffic/responsiveness", traffic(false, other, 20302, key, ""),
			"opening connections to others"},
		{"flows without key", "traffic/flows", traffic(true, loop, 20302, "", ""),
			"traffic without the run's key"},
		{"flows of others", "traffic/flows", traffic(false, other, 20302, key, ""),
			"opening connections to others"},
		{"open requests without key", "traffic/requests", traffic(true, loop, 20302, "", ""),
			"traffic without the run's key"},
		{"pings to others", "traffic/icmp", traffic(false, other, 20302, key, ""),
			"opening connections to others"},
		{"long ceilings", lab.VerbCeilings, make([]map[string]any, 49), "at most 48"},
		{"open echo", agent.VerbEcho, agent.EchoAt{Addr: loop, Port: 20303}, "an echo without the run's key"},
		{"echo elsewhere", agent.VerbEcho, agent.EchoAt{Addr: loop, Port: 53, Tag: key},
			"port 53 is not one of its data ports"},
		{"datagrams to others", agent.VerbReach, agent.Reach{
			From:  loop,
			To:    other,
			Port:  53,
			Sizes: []int{100},
		}, "sending to others"},
		{"huge packets", agent.VerbReach, agent.Reach{
			From:  loop,
			To:    loop,
			Port:  20303,
			Tag:   key,
			Sizes: []int{math.MaxInt},
		}, "an IP packet has 0 to"},
		{"many packets", agent.VerbReach, agent.Reach{
			From:  loop,
			To:    loop,
			Port:  20303,
			Tag:   key,
			Sizes: make([]int, 100_000),
		}, "at most 64"},
		{"huge packets of a load", "traffic/native", bounds(traffic(true, loop, 20301, key, ""),
			func(l *record.Load) {
				l.Protocol = "udp"
				l.Sizes = []int{math.MaxInt}
			}), "packet size"},
		{"countless streams", "traffic/native", bounds(traffic(true, loop, 20301, key, ""),
			func(l *record.Load) { l.Streams = math.MaxInt }), "streams"},
		{"countless samples", "traffic/echo", bounds(traffic(true, loop, 20301, key, ""),
			func(l *record.Load) { l.Protocol, l.Interval = "echo", 1 }), "interval 1ns"},
		{"no request", "traffic/native", "all you have", "read the request"},
		{"program", "traffic/iperf3", traffic(true, loop, 20301, key, ""), "a peer starts no other program"},
		{"kernel's program", "traffic/xdp", traffic(true, loop, 20301, key, ""),
			"a peer puts no program into its kernel"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := a.Invoke(labtest.Context(t), tt.verb, tt.in, nil)
			expect.Error(t, "the request", err, tt.want)
		})
	}
}

// bounds changes the load of a request.
func bounds(request map[string]any, change func(*record.Load)) map[string]any {
	l := request["load"].(record.Load)
	change(&l)
	request["load"] = l
	return request
}

// TestPeerKeepsItsKernelsLog: what a machine's kernel logs is its own, unless it is asked to show it.
func TestPeerKeepsItsKernelsLog(t *testing.T) {
	a := meetPeer(t)
	ctx := labtest.Context(t)
	w, err := watch.Start(ctx, a, "server", []string{"kernellog"}, watch.Options{Fast: 1})
	must(t, err)
	defer w.Close()
	d, err := w.Collect(ctx, host.Monotonic()-int64(time.Second), host.Monotonic())
	if err != nil || len(d.Samples) != 1 || !strings.Contains(d.Samples[0].Unavailable,
		"keeps its kernel's log") {
		t.Errorf("got %+v, %v, want that the log is kept", d.Samples, err)
	}
}

// TestPeerServesFewThingsAtOnce: a controller that opens session after session is bounded too.
func TestPeerServesFewThingsAtOnce(t *testing.T) {
	a := meetPeer(t)
	ctx := labtest.Context(t)
	refused := 0
	for range 40 {
		s, err := a.Open(ctx, watch.Verb, watch.Request{Probes: []string{"cpu"}})
		must(t, err)
		defer s.Close()
		if err := s.Recv(nil); err != nil {
			refused++
		}
	}

	if refused != 24 {
		t.Errorf("of 40 sessions %d were refused, want 24", refused)
	}
}

// TestEchoAnswersOnlyTheRun: datagrams of others come not back.
func TestEchoAnswersOnlyTheRun(t *testing.T) {
	a := meetPeer(t)
	ctx := labtest.Context(t)
	key := strings.Repeat("5", 64)
	loop := netip.MustParseAddr("127.0.0.1")
	s, err := a.Open(ctx, agent.VerbEcho, agent.EchoAt{Addr: loop, Port: 20303, Tag: key})
	must(t, err)
	defer s.Close()
	must(t, s.Recv(nil))
	near := labtest.Serve(agent.Handlers(agent.Role, agent.Parts{}))
	defer near.Close()
	for tag, want := range map[string]int{key: 2, "somebody": 0} {
		var got agent.Reached
		err := near.Invoke(ctx, agent.VerbReach, agent.Reach{
			From:  loop,
			To:    loop,
			Port:  20303,
			Sizes: []int{100, 1500},
			Tag:   tag,
			Tries: 2,
		}, &got)
		if err != nil || len(got.Back) != want {
			t.Errorf("with the tag %q: got %+v, %v, want %d of two back", tag, got, err, want)
		}
	}

	var elsewhere agent.Reached
	if err := near.Invoke(ctx, agent.VerbReach, agent.Reach{
		From:  netip.MustParseAddr("127.0.0.2"),
		To:    loop,
		Port:  20303,
		Sizes: []int{100},
		Tag:   key,
		Tries: 2,
	}, &elsewhere); err != nil ||
		len(elsewhere.Back) != 0 {
		t.Errorf("from another address than the controller's: got %+v, %v, want nothing back", elsewhere, err)
	}

	var route agent.FoundRoute
	if err := near.Invoke(ctx, agent.VerbRoute, agent.FindRoute{From: loop, To: loop, Port: 20303, Tag: key},
		&route); err != nil || !route.Reached || len(route.Routers) != 0 {
		t.Errorf("route: got %+v, %v, want that it is reached without a router", route, err)
	}
}
