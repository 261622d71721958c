package trial

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// Hops are probed by ICMP, which routers answer in software, some at a limited rate; distant hops reveal
// nothing about the router.
const (
	maxHops     = 4
	hopInterval = 50 * time.Millisecond
	hopStart    = time.Second // until a hop has answered; one that never did is not waited for again
	hopPatience = time.Second // after the load's own probe has ended
)

// hops returns the routers on the plain path between two machines, the nearest first; the zero address stands
// for one that does not identify itself.
func (a *attempt) hops() []netip.Addr {
	x := a.c.discovered[cmp.Or(a.d.ip, 4)]
	if a.c.Hopper == nil || a.lab.OwnNetwork() || a.way.path.Slot != 0 || a.d.probeOpener != "near" ||
		x == nil || x.route == nil {
		return nil
	}
	return x.route.Routers[:min(maxHops, len(x.route.Routers))]
}

// probeHops measures round trips to the path's routers in the window that c gives to others. The probes are
// running when it returns, so that they do not start amid the load. They end with the window. A hop that does
// not answer is not a failure. The returned function waits for the probes.
func (a *attempt) probeHops(ctx context.Context, c *conductor, warmup, duration time.Duration,
	into func(*record.Hop) **record.Latency) (wait func()) {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	starting := map[netip.Addr]chan struct{}{}
	for i, addr := range a.hops() {
		if !addr.IsValid() {
			continue
		}

		h := a.hop(i+1, addr)
		load := a.probeLoad(warmup, duration)
		load.Interval = max(load.Interval, hopInterval)
		far := traffic.End{Node: h.Addr, Addr: addr, Target: addr, ThirdParty: "router"}
		starts := make(chan struct{})
		started := sync.OnceFunc(func() { close(starts) })
		if !a.c.mute[addr] {
			starting[addr] = starts
		}

		all.Go(func() {
			defer started()
			l, err := a.c.Hopper.Probe(ctx, a.way.near, far, load, follower{c, started})
			if *into(h) = l; err != nil {
				h.Silent = err.Error()
			}
		})
	}

	a.c.await(ctx, starting)
	return func() {
		stop := time.AfterFunc(hopPatience, cancel)
		all.Wait()
		stop.Stop()
		cancel()
	}
}

// await waits until the probes of hops have started, and records hops that do not answer.
func (c *Campaign) await(ctx context.Context, starting map[netip.Addr]chan struct{}) {
	late, stop := context.WithTimeout(ctx, hopStart)
	defer stop()
	for addr, starts := range starting {
		select {
		case <-starts:
		case <-late.Done():
			if c.mute == nil {
				c.mute = map[netip.Addr]bool{}
			}

			c.mute[addr] = ctx.Err() == nil
		}
	}
}

// hop returns the trial's hop with this number, creating it if necessary.
func (a *attempt) hop(number int, addr netip.Addr) *record.Hop {
	i := slices.IndexFunc(a.t.Hops, func(h *record.Hop) bool { return h.Number == number })
	if i < 0 {
		a.t.Hops = append(a.t.Hops, &record.Hop{Number: number, Addr: addr.String()})
		i = len(a.t.Hops) - 1
	}
	return a.t.Hops[i]
}

// follower uses the window that a conductor gives to others, for which the conductor does not wait. It
// reports when it could begin.
type follower struct {
	*conductor
	started func()
}

func (f follower) Ready(ctx context.Context) (record.Window, error) {
	f.started()
	return f.begun(ctx)
}

func (follower) Progress(traffic.Progress) {}
