// Package ceiling measures the maximum rates of the tester alone, without a router. It determines which
// kinds of traffic are measured, and how often. It does not interpret the results.
package ceiling

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/probe/bpf"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/frames"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/shortflow"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/stream"
)

// Names of the engines, other than native, whose ceilings are measured.
var (
	flowsEngine    = shortflow.Flows{}.Name()
	requestsEngine = shortflow.Requests{}.Name()
	framesEngine   = frames.XDP{}.Name()
)

// Durations of the windows. They are short, because every campaign measures ceilings before its first
// trial. The result is the median of the windows, because it is compared with medians of trials.
const (
	ceilingWarmup  = 100 * time.Millisecond
	ceilingWindow  = 200 * time.Millisecond
	ceilingDrain   = 60 * time.Millisecond
	ceilingLead    = 30 * time.Millisecond
	ceilingWindows = 3
)

// Each is the approximate time to measure one kind of traffic.
const Each = ceilingWindows*(ceilingWarmup+ceilingWindow+ceilingDrain+ceilingLead) + 400*time.Millisecond

const usualMTU = 1500

// Kind describes a kind of traffic whose ceiling is measured.
type Kind record.TrafficKind

// KindOf returns the kind of traffic of an engine's load on a link. Flows started at a rate may all be
// open at once, so their kind has the maximum number of streams. For datagrams, the MTU of the link
// follows from the packet size. For frames, the kind has no link, because frames are not subject to
// offloads.
func KindOf(engine string, l record.Load, over record.Link) Kind {
	if l.Protocol == "udp" {
		over.MTU = l.PacketSize
	}

	if over.MTU <= usualMTU {
		over.MTU = 0
	}

	k := Kind{Protocol: l.Protocol, Streams: min(max(l.Streams, 1), maxSockets), Link: over}
	switch {
	case engine == flowsEngine:
		k.Engine, k.FlowSize = engine, shortflow.FlowSizeOf(l)
		if l.ConnectionRate > 0 {
			k.Streams = maxSockets
		}
	case engine == requestsEngine:
		request, response := shortflow.MessageSizes(l)
		k.Engine, k.RequestSize, k.ResponseSize = engine, int(request), int(response)
	case l.Protocol == "udp":
		k.PacketSize, k.IMIX = l.PacketSize, len(l.Sizes) > 0
		if engine == framesEngine {
			k.Engine = engine
			k.Link = record.Link{}
		}

		if l.UDPMode == record.UDPCount {
			k.UDPMode = l.UDPMode
		}
	}

	return k
}

// Frames reports whether the traffic consists of frames, which cannot be sent on a loopback device.
func (k Kind) Frames() bool { return k.Engine == framesEngine }

// String returns the name of the kind.
func (k Kind) String() string { return k.Over("") }

// Over returns the name of the kind as used in results, with the conditions of the measurement. It omits
// defaults, such as exact mode and offload wire.
func (k Kind) Over(way string) string {
	streams := "1 stream"
	if k.Streams != 1 {
		streams = fmt.Sprintf("%d streams", k.Streams)
	}

	text := []string{strings.TrimRight(cmp.Or(k.Engine, k.Protocol)+" "+way, " ")}
	switch {
	case k.Engine == flowsEngine:
		text = append(text, "size "+k.FlowSize, streams)
	case k.Engine == requestsEngine:
		text = append(text, fmt.Sprintf("%d and %d bytes", k.RequestSize, k.ResponseSize), streams)
	case k.Protocol != "udp":
		text = append(text, streams)
	case k.Frames() && k.IMIX:
		text = append(text, "IMIX frames")
	case k.Frames():
		// The size includes Ethernet's header and check sequence.
		text = append(text, fmt.Sprintf("%d-byte frames", k.PacketSize+18))
	case k.IMIX:
		text = append(text, "IMIX packets")
	default:
		text = append(text, fmt.Sprintf("%d-byte packets", k.PacketSize))
	}

	if k.Protocol == "udp" && k.Streams != 1 {
		text = append(text, streams)
	}

	if k.UDPMode != "" {
		text = append(text, k.UDPMode+" mode")
	}

	if k.Offload != "" && k.Offload != asOnAWire {
		text = append(text, k.Offload)
	}

	if k.MTU > 0 && k.Protocol != "udp" {
		text = append(text, fmt.Sprintf("MTU %d", k.MTU))
	}

	return strings.Join(text, ", ")
}

// UsualKinds lists the kinds to measure on a machine without a campaign: one and several TCP streams,
// small, medium and full packets, new connections, and the smallest frames.
func UsualKinds() []Kind {
	of := func(e traffic.Engine, l record.Load) Kind {
		return KindOf(e.Name(), l, record.Link{Offload: asOnAWire})
	}
	tcp := func(streams int) Kind {
		return of(stream.Native{}, record.Load{Protocol: "tcp", Streams: streams})
	}
	udp := func(size int) Kind { return of(stream.Native{}, record.Load{Protocol: "udp", PacketSize: size}) }
	return []Kind{tcp(1), tcp(4), udp(64), udp(512), udp(1500),
		of(shortflow.Flows{}, record.Load{Protocol: "tcp", ConnectionRate: 1}),
		of(frames.XDP{}, record.Load{Protocol: "udp", PacketSize: traffic.PacketOverhead(4) + bpf.Header})}
}

// asOnAWire is the level of the factor offload at which each packet crosses a link individually.
const asOnAWire = "wire"

// maxKinds limits the number of kinds that a campaign measures in each class of traffic. maxSockets limits
// the number of sockets in one measurement.
const (
	maxKinds   = 4
	maxSockets = 64
)

// classes lists the classes of traffic: traffic through sockets first, then frames.
var classes = [...]Kind{
	{Protocol: "tcp"}, {Protocol: "udp"}, {Protocol: "udp", IMIX: true}, {
		Engine:   flowsEngine,
		Protocol: "tcp",
	}, {Engine: requestsEngine, Protocol: "tcp"},
	{Engine: framesEngine, Protocol: "udp"},
	{Engine: framesEngine, Protocol: "udp", IMIX: true},
}

// Few selects the kinds that a campaign measures. For UDP and frames, it keeps each packet size, with the
// largest number of streams of any load with that size. If a class has more than four kinds with the same
// mode and link, Few keeps the first, the last, and two in between.
func Few(all []Kind) []Kind {
	most := map[Kind]int{} // maximum number of streams; the key is the kind without streams
	for _, k := range all {
		streams := k.Streams
		k.Streams = 0
		most[k] = max(most[k], streams)
	}

	var out []Kind
	for _, class := range classes {
		of := map[string][]Kind{}
		for _, k := range all {
			if k.Engine != class.Engine || k.Protocol != class.Protocol || k.IMIX != class.IMIX {
				continue
			}

			if k.PacketSize > 0 || k.IMIX {
				k.Streams = 0
				k.Streams = most[k]
			}

			how := k.Offload + " " + k.UDPMode
			if k.Protocol == "tcp" {
				how += fmt.Sprintf(" %6d", k.MTU)
			}

			of[how] = append(of[how], k)
		}

		for _, how := range slices.Sorted(maps.Keys(of)) {
			slices.SortFunc(of[how], Kind.compare)
			out = append(out, spread(slices.Compact(of[how]))...)
		}
	}

	return out
}

// compare orders kinds of the same class by size, then by number of streams.
func (k Kind) compare(o Kind) int {
	return cmp.Or(cmp.Compare(k.PacketSize, o.PacketSize), cmp.Compare(k.FlowSize, o.FlowSize),
		cmp.Compare(k.RequestSize, o.RequestSize),
		cmp.Compare(k.ResponseSize, o.ResponseSize), cmp.Compare(k.Streams, o.Streams))
}

// spread selects at most maxKinds kinds, evenly spaced from the first to the last.
func spread(kinds []Kind) []Kind {
	if len(kinds) <= maxKinds {
		return kinds
	}

	out := make([]Kind, maxKinds)
	for i := range out {
		out[i] = kinds[i*(len(kinds)-1)/(maxKinds-1)]
	}

	return out
}

// Loopback measures the maximum rates of the tester on the loopback device of the agent's node, which must
// be up. Sender and receiver share the machine, as in a local lab. The device passes large packets whole,
// as many network cards do.
func Loopback(ctx context.Context, agent host.Agent, kinds []Kind) ([]record.Ceiling, error) {
	// Another user's request must not keep this machine busy for long.
	most := 2 * (len(classes) - 1) * maxKinds
	if len(kinds) > most {
		return nil, fmt.Errorf("measure the tester's ceiling of %d kinds of traffic: want at most %d",
			len(kinds), most)
	}

	i := slices.IndexFunc(kinds, Kind.Frames)
	if i >= 0 {
		return nil, fmt.Errorf("measure the tester's ceiling (%v) over the loopback device: it needs a link",
			kinds[i])
	}

	end, _ := traffic.LoopbackEnd(ctx, "loopback", agent)
	return ceilings(ctx, end, end, "loopback", kinds)
}

// Direct measures the maximum rates of the tester between two directly connected endpoints on one machine.
// The caller configures the link. If there is an error, Direct also returns the results obtained before.
func Direct(ctx context.Context, near, far traffic.End, kinds []Kind) ([]record.Ceiling, error) {
	return ceilings(ctx, near, far, "direct", kinds)
}

func ceilings(ctx context.Context, near, far traffic.End, way string, kinds []Kind) ([]record.Ceiling,
	error) {
	var found []record.Ceiling
	for _, k := range kinds {
		l := record.Load{
			Protocol:     k.Protocol,
			Streams:      k.Streams,
			PacketSize:   k.PacketSize,
			UDPMode:      k.UDPMode,
			FlowSize:     k.FlowSize,
			RequestSize:  k.RequestSize,
			ResponseSize: k.ResponseSize,
			Direction:    record.Up,
			Opener:       "near",
			IP:           4,
			Warmup:       ceilingWarmup,
			Duration:     ceilingWindow,
			Interval:     traffic.DefaultInterval,
			Tag:          fmt.Sprintf("ceiling %v %d", k, host.Monotonic()),
		}
		if k.IMIX {
			l.Sizes = factor.IMIXSizes("4")
		}

		var e traffic.Engine = stream.Native{}
		switch k.Engine {
		case flowsEngine:
			e = shortflow.Flows{}
		case requestsEngine:
			e = shortflow.Requests{}
			l.Direction = record.Both
		case framesEngine:
			e = frames.XDP{Fallback: stream.Native{}}
		}

		c, err := look(ctx, e, near, far, k, l)
		if err != nil {
			return found, fmt.Errorf("measure the tester's ceiling (%v): %w", k, err)
		}

		c.Kind = k.Over(way)
		found = append(found, c)
	}
	return found, nil
}

// look offers a load in several windows and returns the median of the rates, or the lower rate if there
// are two. A window is repeated if nothing arrived or the counters were read late. The result's Note
// contains the number of such windows.
func look(ctx context.Context, e traffic.Engine, near, far traffic.End, k Kind,
	l record.Load) (record.Ceiling, error) {
	var late error
	var said []record.Ceiling
	silent := 0
	for len(said) < ceilingWindows && silent < ceilingWindows {
		t, err := e.Offer(ctx, near, far, l, ceilingClock{})
		if err != nil {
			return record.Ceiling{}, err
		}

		c := ceiling(k, t)
		if late = traffic.Measured(t); late != nil || c.Value <= 0 {
			silent++
			continue
		}

		said = append(said, c)
	}

	switch {
	case len(said) == 0 && late != nil:
		return record.Ceiling{}, late
	case len(said) == 0:
		return record.Ceiling{}, fmt.Errorf("nothing arrived in any of three windows of %v", ceilingWindow)
	}

	slices.SortFunc(said, func(a, b record.Ceiling) int { return cmp.Compare(a.Value, b.Value) })
	middle := said[(len(said)-1)/2]
	if silent > 0 {
		middle.Note += fmt.Sprintf("; windows that said nothing: %d", silent)
	}

	return middle, nil
}

// ceiling returns the total rate of a trial.
func ceiling(k Kind, t *record.Traffic) record.Ceiling {
	c := record.Ceiling{
		Unit:        "bit/s",
		Note:        "sender and receiver on this machine, " + t.Details["near.mode"],
		TrafficKind: record.TrafficKind(k),
	}
	s := t.ShortFlows
	if s != nil {
		c.Unit = record.UnitFlows
		if s.Kept {
			c.Unit = "requests/s"
		}

		c.Value = float64(s.Completed+s.Carried) / ceilingWindow.Seconds()
		return c
	}

	for _, f := range t.Flows {
		if f.Packets != nil && f.ReceiverNs > 0 {
			c.Unit = "pps"
			c.Value += float64(f.Packets.Received) / (float64(f.ReceiverNs) / 1e9)
		}
	}

	if c.Unit == "bit/s" {
		up, down, _ := t.Goodput() // Goodput returns 0 if nothing was counted
		c.Value = up + down
	}

	return c
}

// ceilingClock implements traffic.Conductor. Its Ready starts the load at once.
type ceilingClock struct{}

func (ceilingClock) Ready(context.Context) (record.Window, error) {
	begin := host.Monotonic() + int64(ceilingLead)
	return traffic.NewWindow(begin, ceilingWarmup, ceilingWindow, ceilingDrain), nil
}

func (ceilingClock) Progress(traffic.Progress) {}
