package traffic

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
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

// Kind is a kind of traffic whose ceiling is measured.
type Kind struct {
	Protocol   string `json:"protocol"` // "tcp" or "udp"
	Streams    int    `json:"streams"`
	PacketSize int    `json:"packet_size,omitempty"` // IP length, UDP only
}

// String names the kind in a result.
func (k Kind) String() string {
	streams := "1 stream"
	if k.Streams != 1 {
		streams = fmt.Sprintf("%d streams", k.Streams)
	}
	if k.Protocol != "udp" {
		return k.Protocol + " loopback, " + streams
	}
	text := fmt.Sprintf("udp loopback, %d-byte packets", k.PacketSize)
	if k.Streams != 1 {
		text += ", " + streams
	}
	return text
}

// UsualKinds are those of a machine that is asked what it can do, by itself:
// one stream and several, and the payloads of small, middle and full packets.
func UsualKinds() []Kind {
	return []Kind{
		{"tcp", 1, 0}, {"tcp", 4, 0},
		{"udp", 1, 64}, {"udp", 1, 512}, {"udp", 1, 1500},
	}
}

// mostKinds bounds what a campaign measures of each protocol, most sockets
// how many one measurement takes.
const (
	mostKinds   = 4
	mostSockets = 64
)

// KindsOf are the kinds of traffic that loads have: of TCP by the number of
// streams, of UDP by packet size, with the most streams that any load of that
// size has. Of more than four of a protocol the extremes and two between are
// taken.
func KindsOf(loads []record.Load) []Kind {
	var tcp, sizes []int
	streams := map[int]int{} // of each size
	for _, l := range loads {
		n := min(max(l.Streams, 1), mostSockets)
		if l.Protocol != "udp" {
			tcp = append(tcp, n)
			continue
		}
		sizes = append(sizes, l.PacketSize)
		streams[l.PacketSize] = max(streams[l.PacketSize], n)
	}
	var out []Kind
	for _, n := range spread(tcp) {
		out = append(out, Kind{"tcp", n, 0})
	}
	for _, size := range spread(sizes) {
		out = append(out, Kind{"udp", streams[size], size})
	}
	return out
}

// spread takes at most mostKinds different values, evenly from the smallest to
// the largest.
func spread(values []int) []int {
	slices.Sort(values)
	values = slices.Compact(values)
	if len(values) <= mostKinds {
		return values
	}
	out := make([]int, mostKinds)
	for i := range out {
		out[i] = values[i*(len(values)-1)/(mostKinds-1)]
	}
	return out
}

// Loopback measures what the tester alone can do, with no router between: the
// native engine over the loopback device of the agent's node, which must be
// up. Sender and receiver share the machine, as they do in a local lab.
func Loopback(ctx context.Context, agent host.Agent, kinds []Kind) ([]record.Ceiling, error) {
	if len(kinds) > 2*mostKinds { // somebody else's, who would keep this machine busy
		return nil, fmt.Errorf("measure the tester's ceiling of %d kinds of traffic: at most %d are taken", len(kinds), 2*mostKinds)
	}
	at := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	end := End{Node: "loopback", Agent: agent, Addr: at, Target: at}
	if offset, _, err := agent.Clock(ctx); err == nil {
		end.Offset = offset
	}
	var ceilings []record.Ceiling
	for _, k := range kinds {
		l := record.Load{
			Protocol: k.Protocol, Streams: k.Streams, PacketSize: k.PacketSize,
			Direction: record.Up, Opener: "near", IP: 4,
			Warmup: ceilingWarmup, Duration: ceilingWindow, Interval: defaultInterval,
			Tag: fmt.Sprintf("ceiling %v %d", k, host.Monotonic()),
		}
		t, err := Native{}.Offer(ctx, end, end, l, ceilingClock{})
		if err != nil {
			return nil, fmt.Errorf("measure the tester's ceiling (%v): %w", k, err)
		}
		ceilings = append(ceilings, ceiling(k, t))
	}
	return ceilings, nil
}

// ceiling adds up what arrived.
func ceiling(k Kind, t *record.Traffic) record.Ceiling {
	c := record.Ceiling{
		Kind: k.String(), Unit: "bit/s", Note: "sender and receiver on this machine, " + t.Details["near.mode"],
		Protocol: k.Protocol, Streams: k.Streams, PacketSize: k.PacketSize,
	}
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
