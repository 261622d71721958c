package traffic

import (
	"context"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// TestMain holds "left as found": no descriptor and no goroutine remains.
func TestMain(m *testing.M) {
	before, goroutines := descriptors(), runtime.NumGoroutine()
	code := m.Run()
	for i := 0; i < 40 && (descriptors() > before+2 || runtime.NumGoroutine() > goroutines); i++ {
		time.Sleep(50 * time.Millisecond)
	}
	// Two descriptors belong to the runtime's poller.
	if d, g := descriptors(), runtime.NumGoroutine(); d > before+2 || g > goroutines {
		stacks := make([]byte, 1<<16)
		println("left behind: descriptors", d, "of", before, "goroutines", g, "of", goroutines,
			string(stacks[:runtime.Stack(stacks, true)]))
		code = 1
	}
	os.Exit(code)
}

func descriptors() int {
	d, _ := os.ReadDir("/proc/self/fd")
	return len(d)
}

// handlers are the node halves, as an agent would carry them.
func handlers() map[string]host.Handler {
	return map[string]host.Handler{
		"traffic/native": Native{}.Serve,
		"traffic/echo":   Echo{}.Serve,
		"traffic/iperf3": Iperf3{}.Serve,
	}
}

// node is an agent in this process.
func node(t testing.TB) host.Agent {
	t.Helper()
	a, b := net.Pipe()
	served := make(chan error, 1)
	go func() { served <- host.Serve(context.Background(), b, handlers()) }()
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

func ends(t testing.TB, at netip.Addr) (near, far End) {
	return End{Node: "client", Agent: node(t), Addr: at, Target: at},
		End{Node: "server", Agent: node(t), Addr: at, Target: at}
}

// stopwatch is a conductor for one engine.
type stopwatch struct {
	warmup, window, drain time.Duration

	mu       sync.Mutex
	timeline record.Window
	progress []Progress
}

func newStopwatch(window time.Duration) *stopwatch {
	return &stopwatch{warmup: 50 * time.Millisecond, window: window, drain: 100 * time.Millisecond}
}

func (s *stopwatch) Ready(context.Context) (record.Window, error) {
	begin := host.Monotonic() + int64(20*time.Millisecond)
	w := record.Window{Begin: begin, Start: begin + int64(s.warmup)}
	w.End = w.Start + int64(s.window)
	w.Stop = w.End + int64(s.drain)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.timeline = w
	return w, nil
}

func (s *stopwatch) Progress(p Progress) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.progress = append(s.progress, p)
}

func tcpLoad(streams int, direction, opener string) record.Load {
	return record.Load{
		Protocol: "tcp", Direction: direction, Streams: streams, IP: 4, Opener: opener,
		Interval: 20 * time.Millisecond, Tag: "tag of " + direction + opener, Congestion: "cubic",
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
