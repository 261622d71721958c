package traffic

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Timeline of one loopback measurement: short, because it precedes every
// campaign.
const (
	ceilingWarmup = 100 * time.Millisecond
	ceilingWindow = 400 * time.Millisecond
	ceilingDrain  = 60 * time.Millisecond
	ceilingLead   = 30 * time.Millisecond
)

// Loopback measures what the tester alone can do, with no router between: the
// native engine over the loopback device of the agent's node, which must be
// up. Sender and receiver share the machine, as they do in a local lab.
func Loopback(ctx context.Context, agent host.Agent) ([]record.Ceiling, error) {
	at := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	end := End{Node: "loopback", Agent: agent, Addr: at, Target: at}
	if offset, _, err := agent.Clock(ctx); err == nil {
		end.Offset = offset
	}
	var ceilings []record.Ceiling
	for _, c := range []struct {
		kind string
		load record.Load
	}{
		{"tcp loopback, 1 stream", record.Load{Protocol: "tcp", Streams: 1}},
		{"tcp loopback, 4 streams", record.Load{Protocol: "tcp", Streams: 4}},
		{"udp loopback, 64-byte packets", record.Load{Protocol: "udp", Streams: 1, PacketSize: 64}},
	} {
		l := c.load
		l.Direction, l.Opener, l.IP = record.Up, "near", 4
		l.Warmup, l.Duration, l.Interval = ceilingWarmup, ceilingWindow, defaultInterval
		l.Tag = fmt.Sprintf("ceiling %s %d", c.kind, host.Monotonic())
		t, err := Native{}.Offer(ctx, end, end, l, ceilingClock{})
		if err != nil {
			return nil, fmt.Errorf("measure the tester's ceiling (%s): %w", c.kind, err)
		}
		ceilings = append(ceilings, ceiling(c.kind, t))
	}
	return ceilings, nil
}

// ceiling adds up what arrived.
func ceiling(kind string, t *record.Traffic) record.Ceiling {
	c := record.Ceiling{Kind: kind, Unit: "bit/s", Note: "sender and receiver on this machine, " + t.Details["near.mode"]}
	for _, f := range t.Flows {
		seconds := float64(f.ReceiverNs) / 1e9
		if seconds <= 0 {
			continue
		}
		if f.Packets != nil {
			c.Unit = "pps"
			c.Value += float64(f.Packets.Received) / seconds
			continue
		}
		c.Value += 8 * float64(f.ReceivedBytes) / seconds
	}
	return c
}

// ceilingClock starts a load at once.
type ceilingClock struct{}

func (ceilingClock) Ready(context.Context) (record.Window, error) {
	w := record.Window{Begin: host.Monotonic() + int64(ceilingLead)}
	w.Start = w.Begin + int64(ceilingWarmup)
	w.End = w.Start + int64(ceilingWindow)
	w.Stop = w.End + int64(ceilingDrain)
	return w, nil
}

func (ceilingClock) Progress(Progress) {}
