package trial

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// Hops are probed with ICMP. Routers answer such probes in software, some of them at a limited rate. Only
// nearby hops are probed, because distant ones show nothing about the router.
const (
	maxHops     = 4
	hopInterval = 50 * time.Millisecond
	hopStart    = time.Second // limit for a hop's first answer; later trials do not wait for slower hops
	hopPatience = time.Second // time to wait after the load's own probe has ended
)

// hops returns the routers to probe on the path, the nearest first. It returns none if the path is a tunnel
// or if the route is unknown. A router that does not identify itself has the zero address.
func (a *attempt) hops() []netip.Addr {
	x := a.c.discovered[a.d.ip]
	switch {
	case a.c.Hopper == nil || a.way.path.Slot != 0 || a.d.probeOpener != "near":
		return nil
	case a.lab.OwnNetwork():
		return a.lab.Hops(a.d.ip)
	case x == nil || x.route == nil:
		return nil
	}

	return x.route.Routers[:min(maxHops, len(x.route.Routers))]
}

// probeHops measures the round-trip times to the routers on the path, in the window of c. It returns when the
// probes have started, so that no probe starts during the load. The probes end with the window. A hop that
// does not answer is not an error. The returned function waits until the probes have ended.
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

// await waits until the probes of hops have started, and records which hops do not answer.
func (c *Campaign) await(ctx context.Context, starting map[netip.Addr]chan struct{}) {
	late, stop := context.WithTimeout(ctx, hopStart)
	defer stop()
	for addr, starts := range starting {
		select {
		case <-starts:
		case <-late.Done():
			put(&c.mute, addr, ctx.Err() == nil)
		}
	}
}

// hop returns the hop with the given number in the trial. If the trial does not have it, hop adds it.
func (a *attempt) hop(number int, addr netip.Addr) *record.Hop {
	i := slices.IndexFunc(a.t.Hops, func(h *record.Hop) bool { return h.Number == number })
	if i < 0 {
		a.t.Hops = append(a.t.Hops, &record.Hop{Number: number, Addr: addr.String()})
		i = len(a.t.Hops) - 1
	}
	return a.t.Hops[i]
}

// follower implements traffic.Conductor for a probe that uses the window of a conductor. The conductor
// does not wait for the probe. follower calls started when the probe is ready.
type follower struct {
	*conductor
	started func()
}

func (f follower) Ready(ctx context.Context) (record.Window, error) {
	f.started()
	return f.begun(ctx)
}

func (follower) Progress(traffic.Progress) {}
