package trial

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/pair"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// TestAPeerThatServesOurBrokenConnectionIsWaitedFor: its half of that lives on for a while, and until then
// another is refused.
func TestAPeerThatServesOurBrokenConnectionIsWaitedFor(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	listen := func() net.Listener {
		ln, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}

		context.AfterFunc(ctx, func() { ln.Close() })
		return ln
	}
	peer := listen()
	between := listen()
	code := pair.NewCode()
	about := func(_ context.Context, s host.Session) error {
		local := netip.MustParseAddr("127.0.0.1")
		return s.Send(lab.About{Local: local, Remote: local, Ports: [2]int{1, 3}})
	}
	all.Go(func() {
		l := pair.Listener{Code: code, Idle: time.Minute, Tell: func(netip.AddrPort, string) {}}
		_ = l.Serve(ctx, peer, func(ctx context.Context, v *pair.Visit) error { // ends when told
			return host.Serve(ctx, v, map[string]host.Handler{lab.VerbAbout: about})
		})
	})
	// What is between hides from the peer that the first controller is gone.
	first := make(chan [2]net.Conn, 1)
	all.Go(func() {
		for i := 0; ; i++ {
			near, err := between.Accept()
			if err != nil {
				return
			}

			far, err := new(net.Dialer).DialContext(ctx, "tcp", peer.Addr().String())
			if err != nil {
				near.Close()
				return
			}

			if i == 0 {
				first <- [2]net.Conn{near, far}
			}

			context.AfterFunc(ctx, func() { near.Close(); far.Close() })
			all.Go(func() { io.Copy(far, near) })
			all.Go(func() { io.Copy(near, far); near.Close() })
		}
	})
	l, err := lab.Pair{ID: "pair", Address: between.Addr().String(), Code: code}.Up(ctx)
	if err != nil {
		t.Fatal(err)
	}

	conns := <-first
	conns[0].Close()
	late := time.AfterFunc((gonePatience+2)*time.Second, func() { conns[1].Close() })
	defer late.Stop()
	cell := record.Factors{"topology": "forward"}
	c := &Campaign{testbeds: map[labPlace]*testbed{placeOf(cell): {lab: l}}}
	failed := &record.Trial{
		Row: record.Row{Assignment: record.Assignment{Factors: cell}},
		TrialHead: record.TrialHead{
			Failure: &record.Failure{Error: "agent: unreachable"},
		},
	}
	gone := c.reconnect(ctx, failed)
	if gone != nil {
		t.Errorf("a peer that is there: got %v, want it met again", gone)
	}

	if err := l.Close(ctx); err != nil {
		t.Error(err)
	}
}

// TestFactsInWhichGuestsDifferAreLeftOut, and said to be.
func TestFactsInWhichGuestsDifferAreLeftOut(t *testing.T) {
	c := &Campaign{Run: record.Run{Environments: []record.Environment{{Node: "host"}, {
		Node:  "router",
		Facts: map[string]string{"kernel": "6.12", "cpu_threads": "1", "mitigation:x": "off"},
	}}}}
	for _, threads := range []string{"2", "4"} {
		c.leaveOutOthers(record.Environment{
			Node: "router",
			Facts: map[string]string{"kernel": "6.12",
				"cpu_threads": threads, "mitigation:x": "off"},
		})
	}

	want := record.Environment{
		Node:    "router",
		Facts:   map[string]string{"kernel": "6.12", "mitigation:x": "off"},
		Missing: map[string]string{"cpu_threads": "guests differ by cell: 1, 2"},
	}
	diff := cmp.Diff(want, c.Run.Environments[1])
	if diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
}

// TestWhatOpensIsSaidWhereNoDatagramPasses: TCP may pass all the same.
func TestWhatOpensIsSaidWhereNoDatagramPasses(t *testing.T) {
	c := &Campaign{discovered: map[int]*discoveredPath{4: {
		opener: map[string]string{"tcp": "far"},
		why:    map[string]string{"udp": "blocked"},
	}}}
	e := c.between("router")
	got := e.Facts["path_ipv4:tcp_opened_by"]
	if got != "far" || e.Missing["path_ipv4:mtu"] != "blocked" {
		t.Errorf("got TCP opened by %q, missing %v, want far, and the MTU missing", got, e.Missing)
	}
}

// TestRebootFor: routers are booted anew once for a cell whose path is dead, and again only if that has
// helped.
func TestRebootFor(t *testing.T) {
	c := &Campaign{}
	cut := record.Factors{"firewall": "1000"}
	other := record.Factors{"firewall": "off"}
	dead := fmt.Errorf("verify: %w: no answer", errDead)
	for i, x := range []struct {
		cell record.Factors
		err  error
		want bool
	}{{cut, dead, true}, {cut, dead, false}, {cut, errors.New("another"), false}, {cut, dead, false},
		{other, dead, true}, {other, nil, false}, {other, dead, true}, {cut, dead, false}} {
		got := c.rebootFor(x.cell, x.err)
		if got != x.want {
			t.Errorf("trial %d, of %v after %v: %v, want %v", i+1, x.cell, x.err, got, x.want)
		}
	}
}
