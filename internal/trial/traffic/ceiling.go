package traffic

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/probe/bpf"
)

// Timeline of one loopback measurement: short, because it precedes every
// campaign.
const (
	ceilingWarmup = 100 * time.Millisecond
	ceilingWindow = 300 * time.Millisecond
	ceilingDrain  = 60 * time.Millisecond
	ceilingLead   = 30 * time.Millisecond
)

// Kind is a kind of traffic whose ceiling is measured.
type Kind struct {
	Engine       string `json:"engine,omitempty"` // "flows", "requests" or "xdp"; "" = native
	Protocol     string `json:"protocol"`         // "tcp" or "udp"
	Streams      int    `json:"streams"`
	PacketSize   int    `json:"packet_size,omitempty"` // IP length, UDP only
	IMIX         bool   `json:"imix,omitempty"`        // the mix imix of IPv4, in the place of packet_size
	FlowSize     string `json:"flow_size,omitempty"`   // of flows
	RequestSize  int    `json:"request_size,omitempty"`
	ResponseSize int    `json:"response_size,omitempty"`
}

// KindOf is the kind of traffic that a load of an engine is. Flows that are
// begun at a rate are as many at once as it takes, so theirs has many streams.
func KindOf(engine string, l record.Load) Kind {
	k := Kind{Protocol: l.Protocol, Streams: min(max(l.Streams, 1), mostSockets)}
	switch {
	case engine == Flows{}.Name():
		k.Engine, k.FlowSize = engine, flowSizeOf(l)
		if l.ConnectionRate > 0 {
			k.Streams = mostSockets
		}
	case engine == Requests{}.Name():
		request, response := messageSizes(l)
		k.Engine, k.RequestSize, k.ResponseSize = engine, int(request), int(response)
	case l.Protocol == "udp":
		k.PacketSize, k.IMIX = l.PacketSize, len(l.Sizes) > 0
		if engine == (XDP{}).Name() {
			k.Engine = engine
		}
	}
	return k
}

// Frames says that a kind is of frames, which no loopback device takes.
func (k Kind) Frames() bool { return k.Engine == XDP{}.Name() }

// String names the kind in a result.
func (k Kind) String() string {
	streams := "1 stream"
	if k.Streams != 1 {
		streams = fmt.Sprintf("%d streams", k.Streams)
	}
	text := ""
	switch {
	case k.Engine == Flows{}.Name():
		return fmt.Sprintf("flows loopback, size %s, %s", k.FlowSize, streams)
	case k.Engine == Requests{}.Name():
		return fmt.Sprintf("requests loopback, %d and %d bytes, %s", k.RequestSize, k.ResponseSize, streams)
	case k.Protocol != "udp":
		return k.Protocol + " loopback, " + streams
	case k.Frames():
		text = fmt.Sprintf("xdp direct, %d-byte frames", k.PacketSize+18) // Ethernet's header and check sequence
	case k.IMIX:
		text = "udp loopback, IMIX packets"
	default:
		text = fmt.Sprintf("udp loopback, %d-byte packets", k.PacketSize)
	}
	if k.Streams != 1 {
		text += ", " + streams
	}
	return text
}

// UsualKinds are those of a machine that is asked what it can do, by itself:
// one stream and several, the payloads of small, middle and full packets, new
// connections and the smallest frames.
func UsualKinds() []Kind {
	tcp := func(streams int) Kind { return Kind{Protocol: "tcp", Streams: streams} }
	udp := func(size int) Kind { return Kind{Protocol: "udp", Streams: 1, PacketSize: size} }
	return []Kind{
		tcp(1), tcp(4), udp(64), udp(512), udp(1500),
		KindOf(Flows{}.Name(), record.Load{Protocol: "tcp", ConnectionRate: 1}),
		KindOf(XDP{}.Name(), record.Load{Protocol: "udp", PacketSize: packetOverhead(4) + bpf.Header}),
	}
}

// mostKinds bounds what a campaign measures of each class of traffic, and
// mostSockets how many sockets one measurement takes.
const (
	mostKinds   = 4
	mostSockets = 64
)

// classes of traffic: those of sockets, then frames.
var classes = [...]Kind{
	{Protocol: "tcp"}, {Protocol: "udp"}, {Protocol: "udp", IMIX: true}, {Engine: Flows{}.Name(), Protocol: "tcp"}, {Engine: Requests{}.Name(), Protocol: "tcp"},
	{Engine: XDP{}.Name(), Protocol: "udp"},
}

// Few are the kinds that a campaign measures of those that its loads have: of
// UDP and of frames each packet size, with the most streams that any load of
// that size has. Of more than four of a class the extremes and two between are
// taken.
func Few(all []Kind) []Kind {
	most := map[Kind]int{} // streams, of the kind without them
	for _, k := range all {
		streams := k.Streams
		k.Streams = 0
		most[k] = max(most[k], streams)
	}
	var out []Kind
	for _, class := range classes {
		var of []Kind
		for _, k := range all {
			if k.Engine != class.Engine || k.Protocol != class.Protocol || k.IMIX != class.IMIX {
				continue
			}
			if k.PacketSize > 0 || k.IMIX {
				k.Streams = 0
				k.Streams = most[k]
			}
			of = append(of, k)
		}
		slices.SortFunc(of, Kind.compare)
		out = append(out, spread(slices.Compact(of))...)
	}
	return out
}

// compare orders the kinds of a class by size, then by streams.
func (k Kind) compare(o Kind) int {
	return cmp.Or(cmp.Compare(k.PacketSize, o.PacketSize), cmp.Compare(k.FlowSize, o.FlowSize), cmp.Compare(k.RequestSize, o.RequestSize),
		cmp.Compare(k.ResponseSize, o.ResponseSize), cmp.Compare(k.Streams, o.Streams))
}

// spread takes at most mostKinds, evenly from the first to the last.
func spread(kinds []Kind) []Kind {
	if len(kinds) <= mostKinds {
		return kinds
	}
	out := make([]Kind, mostKinds)
	for i := range out {
		out[i] = kinds[i*(len(kinds)-1)/(mostKinds-1)]
	}
	return out
}

// Loopback measures what the tester alone can do, with no router between: over
// the loopback device of the agent's node, which must be up. Sender and
// receiver share the machine, as they do in a local lab.
func Loopback(ctx context.Context, agent host.Agent, kinds []Kind) ([]record.Ceiling, error) {
	if most := (len(classes) - 1) * mostKinds; len(kinds) > most { // somebody else's, who would keep this machine busy
		return nil, fmt.Errorf("measure the tester's ceiling of %d kinds of traffic: at most %d are taken", len(kinds), most)
	}
	if i := slices.IndexFunc(kinds, Kind.Frames); i >= 0 {
		return nil, fmt.Errorf("measure the tester's ceiling (%v) over the loopback device: it needs a link", kinds[i])
	}
	at := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	end := End{Node: "loopback", Agent: agent, Addr: at, Target: at}
	if offset, _, err := agent.Clock(ctx); err == nil {
		end.Offset = offset
	}
	return Direct(ctx, end, end, kinds)
}

// Direct measures what the tester alone can do between two ends of one machine
// that nothing lies between. What it measured of kinds before one that it could
// not is returned with the error.
func Direct(ctx context.Context, near, far End, kinds []Kind) ([]record.Ceiling, error) {
	var ceilings []record.Ceiling
	for _, k := range kinds {
		l := record.Load{
			Protocol: k.Protocol, Streams: k.Streams, PacketSize: k.PacketSize,
			FlowSize: k.FlowSize, RequestSize: k.RequestSize, ResponseSize: k.ResponseSize,
			Direction: record.Up, Opener: "near", IP: 4,
			Warmup: ceilingWarmup, Duration: ceilingWindow, Interval: defaultInterval,
			Tag: fmt.Sprintf("ceiling %v %d", k, host.Monotonic()),
		}
		if k.IMIX {
			l.Sizes = record.IMIXSizes("4")
		}
		var e Engine = Native{}
		switch k.Engine {
		case Flows{}.Name():
			e = Flows{}
		case Requests{}.Name():
			e, l.Direction = Requests{}, record.Both
		case XDP{}.Name():
			e = XDP{}
		}
		c, err := look(ctx, e, near, far, k, l)
		if err != nil {
			return ceilings, fmt.Errorf("measure the tester's ceiling (%v): %w", k, err)
		}
		ceilings = append(ceilings, c)
	}
	return ceilings, nil
}

// look offers a load until some of it arrives and is counted in time: a machine
// that stood still said nothing of what it can do. How often that was is noted.
func look(ctx context.Context, e Engine, near, far End, k Kind, l record.Load) (record.Ceiling, error) {
	var late error
	for before := range 3 {
		t, err := e.Offer(ctx, near, far, l, ceilingClock{})
		if err != nil {
			return record.Ceiling{}, err
		}
		if late = Measured(t); late != nil {
			continue
		}
		if c := ceiling(k, t); c.Value > 0 {
			if before > 0 {
				c.Note += fmt.Sprintf("; windows before that said nothing: %d", before)
			}
			return c, nil
		}
	}
	if late != nil {
		return record.Ceiling{}, late
	}
	return record.Ceiling{}, fmt.Errorf("nothing arrived in any of three windows of %v", ceilingWindow)
}

// ceiling adds up what arrived.
func ceiling(k Kind, t *record.Traffic) record.Ceiling {
	c := record.Ceiling{
		Kind: k.String(), Unit: "bit/s", Note: "sender and receiver on this machine, " + t.Details["near.mode"],
		Engine: k.Engine, Protocol: k.Protocol, Streams: k.Streams, PacketSize: k.PacketSize, IMIX: k.IMIX,
		FlowSize: k.FlowSize, RequestSize: k.RequestSize, ResponseSize: k.ResponseSize,
	}
	if s := t.ShortFlows; s != nil {
		c.Unit = record.UnitFlows
		if s.Kept {
			c.Unit = "requests/s"
		}
		c.Value = float64(s.Completed+s.Carried) / ceilingWindow.Seconds()
		return c
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
