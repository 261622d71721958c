package traffic_test

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/stream"
)

// workers are the stacks of goroutines that run an engine's code, but for the test's own.
func workers() string {
	b := make([]byte, 1<<20)
	var ours []string
	for _, s := range strings.Split(string(b[:runtime.Stack(b, true)]), "\n\n")[1:] {
		if strings.Contains(s, "internal/trial/traffic") &&
			!strings.Contains(s, "traffic_test.serving.func") &&
			!strings.Contains(s, "testing.(*T).Run(") {
			ours = append(ours, s)
		}
	}

	return strings.Join(ours, "\n\n")
}

// descriptors counts what is open: sockets, pipes, epolls.
func descriptors(t *testing.T) map[string]int {
	t.Helper()
	kinds := map[string]int{}
	files, _ := filepath.Glob("/proc/self/fd/*")
	for _, f := range files {
		to, err := os.Readlink(f)
		if err != nil {
			continue // the one that lists them
		}

		kind, _, _ := strings.Cut(to, ":[")
		kinds[kind]++
	}

	return kinds
}

// TestNothingOutlivesALoad: after each load, ended or abandoned, no goroutine of the engine runs and
// nothing that it opened is open.
func TestNothingOutlivesALoad(t *testing.T) {
	udp := func(mode string, streams int) record.Load {
		l := udpLoad(streams, record.Both, "near", 200, 0)
		l.UDPMode = mode
		return l
	}
	verified := tcpLoad(2, record.Both, "near")
	verified.Verify = true
	for name, load := range map[string]record.Load{
		"tcp": tcpLoad(2, record.Both, "near"), "tcp, verified": verified,
		"tcp, many": tcpLoad(traffic.OwnThreads,
			record.Both, "far"),
		"udp": udp("", 2), "udp, many": udp("", 60), "udp counted": udp(record.UDPCount, 2),
		"udp counted, many": udp(record.UDPCount, 60),
	} {
		for _, abandoned := range []bool{false, true} {
			t.Run(name+map[bool]string{false: "", true: ", abandoned"}[abandoned], func(t *testing.T) {
				near, far := ends(t, loopback4)
				if _, _, err := near.Agent.Clock(t.Context()); err != nil { // both are there
					t.Fatal(err)
				}

				before := descriptors(t)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				length := 60 * time.Millisecond
				if abandoned {
					time.AfterFunc(150*time.Millisecond, cancel)
					length = time.Minute
				}

				_, err := stream.Native{}.Offer(ctx, near, far, load, newStopwatch(length))
				if (err != nil) != abandoned {
					t.Fatalf("offer: %v", err)
				}

				var left string
				var open map[string]int
				for range 60 {
					if left, open = workers(), descriptors(t); left == "" &&
						open["socket"] <= before["socket"] &&
						open["pipe"] <= before["pipe"] && open["anon_inode"] <= before["anon_inode"] {
						return
					}

					time.Sleep(20 * time.Millisecond)
				}

				t.Errorf("open before %v, after %v; still at work:\n%s", before, open, left)
			})
		}
	}
}
