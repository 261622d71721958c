package tunnel

import (
	"context"
	"encoding/json"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/apart"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/expect"
)

// sticky is a kind of tunnel without a device, whose end can stop answering, as a stopped process does.
type sticky struct {
	kind  string
	hangs chan struct{} // a value makes the next reading hang
	slow  atomic.Int64  // how long each reading takes, in ns
	ends  chan struct{} // closed by what kills it
	kill  sync.Once
	clean atomic.Int32 // how often it was cleared
}

func (k *sticky) Name() string                                { return k.kind }
func (k *sticky) probe(context.Context, request) check.Answer { return check.OK() }
func (k *sticky) clear(request, connect) error                { k.clean.Add(1); return nil }
func (k *sticky) open(r request) (side, error)                { return &stickySide{kind: k, mtu: r.MTU}, nil }

type stickySide struct {
	kind *sticky
	mtu  int
	n    uint64
}

func (e *stickySide) public() string                                   { return "" }
func (e *stickySide) configure(context.Context, []byte, connect) error { return nil }
func (e *stickySide) close() error                                     { return nil }
func (e *stickySide) read() (status, error) {
	time.Sleep(time.Duration(e.kind.slow.Load()))
	select {
	case <-e.kind.hangs:
		<-e.kind.ends
	default:
	}

	e.n++
	return status{ReceivedPackets: e.n, MTU: e.mtu, Handshake: -1}, nil
}

// TestAnEndThatHangsIsWaitedForAndClearedAway: its name is free only once it was killed, and then what it
// left is cleared before Down returns, so that the next tunnel can have the same device.
func TestAnEndThatHangsIsWaitedForAndClearedAway(t *testing.T) {
	t.Parallel() // it waits
	const killedAfter = time.Second
	near := newSticky("sticky-near")
	far := newSticky("sticky-far")
	lay := func() (Path, error) { return laySticky(t, near, far, killedAfter) }
	p, err := lay()
	must(t, err)
	_, err = lay()
	expect.Error(t, "laid twice", err, "exists already")
	near.hangs <- struct{}{}
	if _, err := p.Counters(t.Context(), false); err == nil {
		t.Fatal("counters of an end that hangs: got nil, want an error")
	}

	if err := p.Down(t.Context()); err != nil {
		t.Errorf("down: %v", err)
	}

	if near.clean.Load() != 1 || far.clean.Load() != 0 {
		t.Errorf("cleared: near %d times, far %d, want only the one that hung", near.clean.Load(),
			far.clean.Load())
	}

	if p, err = lay(); err != nil {
		t.Fatalf("laid anew: %v", err)
	}

	if err := p.Down(t.Context()); err != nil {
		t.Errorf("down: %v", err)
	}
}

// TestABusyNodeMayTakeItsTime: under load an answer that comes late is one, and the tunnel stays.
func TestABusyNodeMayTakeItsTime(t *testing.T) {
	apart.Long(t, "takes longer than a package has")
	t.Parallel() // it waits
	near := newSticky("busy-near")
	far := newSticky("busy-far")
	p, err := laySticky(t, near, far, time.Second)
	must(t, err)
	near.slow.Store(int64(answerTime + answerTime/10))
	if _, err := p.Counters(t.Context(), true); err != nil {
		t.Errorf("under load: got %v, want the late answer", err)
	}

	near.slow.Store(0)
	if _, err := p.Counters(t.Context(), false); err != nil {
		t.Errorf("after the load: got %v, want that the tunnel stands", err)
	}

	near.hangs <- struct{}{}
	load, ends := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer ends()
	_, err = p.Counters(load, true)
	expect.Error(t, "of a node that hangs", err, "of its end")
	if err := p.Down(t.Context()); err != nil {
		t.Errorf("down: %v", err)
	}
}

func laySticky(t *testing.T, near, far *sticky, killedAfter time.Duration) (Path, error) {
	p := &path{spec: Spec{Device: "cphung0", MTU: 1400}, traits: traits{mute: true}}
	for i, k := range []*sticky{near, far} {
		address := netip.AddrFrom4([4]byte{127, 0, 0, byte(1 + i)})
		p.ends[i] = &end{
			kind: k.kind,
			End: End{
				Node:  k.kind,
				Agent: k.serve(t, killedAfter),
				Outer: address,
				Inner: []netip.Prefix{netip.PrefixFrom(address, 32)},
			},
		}
	}
	return up(t.Context(), p)
}

func newSticky(kind string) *sticky {
	return &sticky{kind: kind, hangs: make(chan struct{}, 1), ends: make(chan struct{})}
}

// serve is an agent that ends a handler which does not leave some time after its session was abandoned.
func (k *sticky) serve(t *testing.T, killedAfter time.Duration) host.Agent {
	a, b := net.Pipe()
	handler := func(ctx context.Context, s host.Session) error {
		stop := context.AfterFunc(ctx, func() {
			time.Sleep(killedAfter)
			k.kill.Do(func() { close(k.ends) })
		})
		defer stop()
		return serve(ctx, s, k)
	}
	// Nodes have names of their own each; here both are in one namespace.
	apart := host.Vetted(handler, func(first json.RawMessage) (any, error) {
		var r request
		err := json.Unmarshal(first, &r)
		r.Device = k.kind
		return r, err
	})
	go host.Serve(t.Context(), b, map[string]host.Handler{host.Verb(host.FamilyTunnel, k.kind): apart})
	agent := host.Connect(a)
	t.Cleanup(func() { agent.Close() })
	return agent
}
