package traffic_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/iperf3"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/latency"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/responsiveness"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/shortflow"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/stream"
)

// TestMain holds "left as found": no socket and no goroutine of ours remains.
func TestMain(m *testing.M) {
	code := m.Run()
	for i := 0; i < 40 && (sockets() > 0 || remains() != ""); i++ {
		time.Sleep(50 * time.Millisecond)
	}

	n, stacks := sockets(), remains()
	if n > 0 || stacks != "" {
		println("left behind:", n, "sockets\n", stacks)
		code = 1
	}

	os.Exit(code)
}

// sockets counts the open network sockets of this process.
func sockets() int {
	n := 0
	files, _ := filepath.Glob("/proc/self/fd/*")
	for _, f := range files {
		to, _ := os.Readlink(f)
		if strings.HasPrefix(to, "socket:") {
			n++
		}
	}

	return n
}

// remains are the stacks of goroutines that run this project's code, but for the one that asks.
func remains() string {
	b := make([]byte, 1<<20)
	stacks := strings.Split(string(b[:runtime.Stack(b, true)]), "\n\n")
	var ours []string
	for _, s := range stacks[1:] {
		if strings.Contains(s, "chokepoint/internal/") {
			ours = append(ours, s)
		}
	}

	return strings.Join(ours, "\n\n")
}

// handlers are the node sides, as an agent would carry them.
func handlers() map[string]host.Handler {
	return map[string]host.Handler{
		"traffic/native": stream.Native{}.Serve,
		"traffic/echo":   latency.Echo{}.Serve,
		"traffic/icmp":   latency.ICMP{}.Serve,

		"traffic/responsiveness": responsiveness.Engine{}.Serve,
		"traffic/iperf3":         iperf3.Engine{}.Serve,
		"traffic/flows":          shortflow.Flows{}.Serve,
		"traffic/requests":       shortflow.Requests{}.Serve,
	}
}

// node is an agent in this process.
func node(t testing.TB) host.Agent { return serving(t, handlers()) }

func serving(t testing.TB, handlers map[string]host.Handler) host.Agent {
	t.Helper()
	a, b := net.Pipe()
	served := make(chan error, 1)
	go func() { served <- host.Serve(context.Background(), b, handlers) }()
	agent := host.Connect(a)
	t.Cleanup(func() {
		agent.Close()
		select {
		case err := <-served:
			if err != nil {
				t.Errorf("node ended with %v, want nil", err)
			}
		case <-time.After(5 * time.Second):
			t.Error("node did not end within 5 s of its controller")
		}
	})
	return agent
}

var (
	loopback4 = netip.MustParseAddr("127.0.0.1")
	loopback6 = netip.MustParseAddr("::1")
)

func ends(t testing.TB, at netip.Addr) (near, far traffic.End) {
	return traffic.End{Node: "client", Agent: node(t), Addr: at, Target: at},
		traffic.End{Node: "server", Agent: node(t), Addr: at, Target: at}
}

// stopwatch is a conductor for one engine.
type stopwatch struct {
	warmup, window, drain time.Duration

	mu       sync.Mutex
	timeline record.Window
	progress []traffic.Progress
}

func newStopwatch(window time.Duration) *stopwatch {
	return &stopwatch{warmup: 50 * time.Millisecond, window: window, drain: 100 * time.Millisecond}
}

func (s *stopwatch) Ready(context.Context) (record.Window, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.timeline = traffic.NewWindow(host.Monotonic()+int64(20*time.Millisecond), s.warmup, s.window, s.drain)
	return s.timeline, nil
}

func (s *stopwatch) Progress(p traffic.Progress) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.progress = append(s.progress, p)
}

// carried offers a load of an engine, which must end well.
func carried(t testing.TB, e traffic.Engine, near, far traffic.End, load record.Load,
	clock *stopwatch) *record.Traffic {
	t.Helper()
	got, err := e.Offer(t.Context(), near, far, load, clock)
	if err != nil {
		t.Fatal(err)
	}

	return got
}

// probed measures latency, which must end well.
func probed(t testing.TB, p traffic.Prober, near, far traffic.End, load record.Load,
	clock *stopwatch) *record.Latency {
	t.Helper()
	got, err := p.Probe(t.Context(), near, far, load, clock)
	if err != nil {
		t.Fatal(err)
	}

	return got
}

// eachWay runs a test for both ends that may open and each direction.
func eachWay(t *testing.T, run func(t *testing.T, opener, direction string)) {
	for _, opener := range []string{"near", "far"} {
		for _, direction := range []string{record.Up, record.Down, record.Both} {
			t.Run(opener+" opens, data "+direction, func(t *testing.T) { run(t, opener, direction) })
		}
	}
}

// wantPromptEnd cancels what runs, which must end with that.
func wantPromptEnd(t *testing.T, within time.Duration, run func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	time.AfterFunc(300*time.Millisecond, cancel)
	began := time.Now()
	err := run(ctx)
	took := time.Since(began)
	if !errors.Is(err, context.Canceled) || took > within {
		t.Errorf("got %v after %v, want %v within %v", err, took, context.Canceled, within)
	}
}

// offered offers a load until its ends had time for it, as a campaign does: the machine is busy with other
// tests.
func offered(t testing.TB, near, far traffic.End, load record.Load, clock *stopwatch) *record.Traffic {
	t.Helper()
	load.Duration = clock.window
	const tries = 6
	for n := 1; ; n++ {
		got := carried(t, stream.Native{}, near, far, load, clock)
		err := traffic.Measured(got)
		if err == nil {
			return got
		}

		if t.Logf("try %d: %v", n, err); n == tries {
			t.Fatal("the ends had no time in any of them")
		}
	}
}

func tcpLoad(streams int, direction, opener string) record.Load {
	return record.Load{
		Protocol:   "tcp",
		Direction:  direction,
		Streams:    streams,
		IP:         4,
		Opener:     opener,
		Interval:   20 * time.Millisecond,
		Tag:        "tag of " + direction + opener,
		Congestion: congestion(),
	}
}

func wantError(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("got no error, want one with %q", words)
	}

	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q lacks %q", err, w)
		}
	}
}

// congestion is the control that the tests ask for: root may take any, others only what
// net.ipv4.tcp_allowed_congestion_control names, which always has reno.
func congestion() string {
	if os.Geteuid() == 0 {
		return "cubic"
	}
	return "reno"
}
