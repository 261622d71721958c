package labtest

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/netip"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// Engine is a load generator that sends nothing. Each stream in each direction carries Bps bit/s and loses
// the fraction Loss of its datagrams. The zero value carries 100 Mbit/s without loss.
type Engine struct {
	Bps, Loss float64
	// Fail, if not nil, is called before the load begins, to inject faults. Offer returns its error.
	Fail func(ctx context.Context, load record.Load) error
	Rate func(load record.Load) float64 // Rate, if set, returns Bps for a load.
	Lose func(load record.Load) float64 // Lose, if set, returns Loss for a load.
	// Refuse, if not nil, returns the reason why a load is impossible, or "".
	Refuse func(load record.Load) string
	// Late, if set, returns how late the far end read its counters.
	Late  func(load record.Load) time.Duration
	Watch func(load record.Load) // Watch, if set, is called for every offer.
	// AtStart, if not nil, is called between warm-up and window, to inject faults.
	AtStart func(w *Wire)

	wire *Wire // set only on nodes: the wire with the ports that the load crosses
}

// Name implements traffic.Engine. It returns "native", because plans use this name.
func (Engine) Name() string { return "native" }

// Check implements traffic.Engine.
func (e Engine) Check(_ context.Context, _, _ traffic.End, load record.Load) check.Answer {
	if e.Refuse != nil {
		why := e.Refuse(load)
		if why != "" {
			return check.Not("%s", why)
		}
	}
	return check.OK()
}

// order describes a load. It is sent when both ends are ready. Only the near end receives flows, and it
// counts their packets for both ends.
type order struct {
	Window record.Window `json:"window"`
	Bps    float64       `json:"bps"`
	To     netip.Addr    `json:"to"`
	Flows  []string      `json:"flows"` // direction of each flow
}

// Offer implements traffic.Engine.
func (e Engine) Offer(ctx context.Context, near, far traffic.End, load record.Load,
	c traffic.Conductor) (*record.Traffic, error) {
	if e.Watch != nil {
		e.Watch(load)
	}

	if e.Fail != nil {
		if err := e.Fail(ctx, load); err != nil {
			return nil, err
		}
	}

	var sessions []host.Session
	for _, end := range []traffic.End{near, far} {
		s, err := end.Agent.Open(ctx, host.Verb(host.FamilyTraffic, e.Name()), load)
		if err != nil {
			return nil, err
		}
		defer s.Close()
		if err := host.Await(ctx, s, nil); err != nil {
			return nil, err
		}

		sessions = append(sessions, s)
	}

	w, err := c.Ready(ctx)
	if err != nil {
		return nil, err
	}

	bps := e.Bps
	if e.Rate != nil {
		bps = e.Rate(load)
	}

	counted := make([]int64, len(sessions))
	o := order{Window: w, Bps: cmp.Or(bps, 100e6), To: far.Addr, Flows: e.flows(load)}
	for _, s := range sessions {
		if err := s.Send(o); err != nil {
			return nil, err
		}

		o.Flows = nil
	}

	for i, s := range sessions {
		if err := host.Await(ctx, s, &counted[i]); err != nil {
			return nil, err
		}
	}

	return e.join(near, far, load, w, counted), nil
}

// join returns the flows with the counts of both ends.
func (e Engine) join(near, far traffic.End, load record.Load, w record.Window,
	counted []int64) *record.Traffic {
	t := &record.Traffic{
		Engine:  e.Name(),
		Version: "fake",
		Load:    load,
		Ends: map[string]record.EndUsage{
			"near": {Node: near.Node, UserNs: 1000}, "far": {Node: far.Node, UserNs: 1000}},
	}
	if e.Late != nil {
		t.Ends["far"] = record.EndUsage{Node: far.Node, UserNs: 1000, EdgeLateNs: int64(e.Late(load))}
	}

	for i, direction := range e.flows(load) {
		f := record.Flow{
			Stream:        i % load.Streams,
			Direction:     direction,
			Local:         near.Addr.String(),
			Remote:        far.Target.String(),
			SentBytes:     counted[0],
			ReceivedBytes: counted[1],
			SenderNs:      w.End - w.Start,
			ReceiverNs:    w.End - w.Start,
		}
		if load.Protocol == "udp" {
			size := max(int64(record.MeanSize(load.PacketSizes())), 1)
			sent := counted[0] / size
			loss := e.Loss
			if e.Lose != nil {
				loss = e.Lose(load)
			}

			lost := int64(float64(sent) * loss)
			f.Packets = &record.Packets{Sent: sent, Received: sent - lost, Lost: lost, Size: load.PacketSize}
			if load.UDPMode != record.UDPCount {
				f.Packets.Duplicates, f.Packets.Reordered = new(int64), new(int64)
			}

			f.ReceivedBytes -= lost * size
		} else {
			f.TCP = &record.TCP{Congestion: load.Congestion, MSS: 1448, BusyNs: w.End - w.Start}
		}

		if load.Verify {
			f.Verified = f.ReceivedBytes
		}

		f.Sent, f.Received = series(w, f.SentBytes), series(w, f.ReceivedBytes)
		t.Flows = append(t.Flows, f)
	}

	return t
}

// flows returns the direction of each flow.
func (Engine) flows(load record.Load) []string {
	var out []string
	for _, direction := range []string{record.Up, record.Down} {
		for range load.Streams {
			if load.Direction == direction || load.Direction == record.Both {
				out = append(out, direction)
			}
		}
	}
	return out
}

// series returns a table of ten intervals in which bytes are sent at a constant rate.
func series(w record.Window, bytes int64) *record.Table {
	t := record.NewTable("bytes", "packets")
	for i := range int64(11) {
		t.Append(w.Start+(w.End-w.Start)*i/10, float64(bytes*i/10), float64(bytes*i/10/1448))
	}
	return t
}

// Serve implements traffic.Engine. It waits for the end of the window and reports the number of bytes per
// stream.
func (e Engine) Serve(ctx context.Context, s host.Session) error {
	var load record.Load
	if err := s.Recv(&load); err != nil {
		return err
	}

	if err := s.Send(struct{}{}); err != nil {
		return err
	}

	var o order
	if err := s.Recv(&o); errors.Is(err, io.EOF) || errors.Is(err, host.ErrAbandoned) {
		return nil
	} else if err != nil {
		return err
	}

	warmup := o.Window.Start - o.Window.Begin
	if err := until(ctx, o.Window.Begin+warmup/2); err != nil {
		return err
	}

	e.carry(o, int64(o.Bps/8*float64(warmup)/1e9))
	if err := until(ctx, o.Window.Start); err != nil {
		return err
	}

	if e.AtStart != nil && e.wire != nil && o.Flows != nil {
		e.AtStart(e.wire)
	}

	if err := until(ctx, o.Window.End); err != nil {
		return err
	}

	bytes := int64(o.Bps / 8 * o.Window.Seconds())
	e.carry(o, bytes)
	return s.Send(bytes)
}

// carry sends bytes on the wire for each flow.
func (e Engine) carry(o order, bytes int64) {
	for _, direction := range o.Flows {
		if e.wire != nil {
			e.wire.Carry(direction == record.Up, o.To, uint64(bytes/1448)+1, uint64(bytes)*105/100)
		}
	}
}

// until waits for a time of the monotonic clock, in nanoseconds.
func until(ctx context.Context, at int64) error {
	return host.Pause(ctx, time.Duration(at-host.Monotonic()))
}

// Prober is a latency probe that sends nothing. Each round trip takes RTT, by default 1 ms. If Fail is
// set, Probe returns it when the load starts.
type Prober struct {
	RTT  time.Duration
	Fail error
}

// Name implements traffic.Prober.
func (Prober) Name() string { return "echo" }

// Probe implements traffic.Prober.
func (p Prober) Probe(ctx context.Context, _, _ traffic.End, load record.Load,
	c traffic.Conductor) (*record.Latency, error) {
	w, err := c.Ready(ctx)
	if err != nil {
		return nil, err
	}

	if p.Fail != nil {
		return nil, p.Fail
	}

	if err := until(ctx, w.End); err != nil {
		return nil, err
	}

	rtt := int64(cmp.Or(p.RTT, time.Millisecond))
	out := &record.Latency{IntervalNs: int64(load.Interval), Size: load.PacketSize, Stamps: "user"}
	for at := w.Start; at < w.End; at += max(int64(load.Interval), 1) {
		out.RTT, out.UserRTT = append(out.RTT, rtt), append(out.UserRTT, rtt)
		out.SentAt, out.Late = append(out.SentAt, at), append(out.Late, 1000)
	}

	return out, nil
}

// Serve implements traffic.Prober. The node has nothing to do.
func (Prober) Serve(context.Context, host.Session) error { return nil }
