package traffic

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// EndReport holds the results of one endpoint, with times of its own clock.
type EndReport struct {
	Flows   []FlowReport      `json:"-"` // sent as further parts of the result
	Usage   record.EndUsage   `json:"usage"`
	Details map[string]string `json:"details"`

	Responsiveness *record.Responsiveness `json:"responsiveness,omitempty"` // only for engine responsiveness
	// set only by engines flows and requests
	ShortFlows *record.ShortFlows `json:"short_flows,omitempty"`

	// The following fields are set only by engine xdp: the transit times of sampled packets, if both times
	// are from this endpoint's clock, and the boot id of the machine with that clock.
	Delays []record.DelayCounts `json:"delays,omitempty"`
	Boot   string               `json:"boot,omitempty"`
}

// FlowReport holds the results of one end of a flow. Bytes and Ns cover the window.
type FlowReport struct {
	Sends    bool          `json:"sends"`
	Addr     string        `json:"addr"` // address and port of this end
	Bytes    int64         `json:"bytes"`
	Ns       int64         `json:"ns"`
	Table    *record.Table `json:"table"`
	TCP      *record.TCP   `json:"tcp,omitempty"`
	Verified int64         `json:"verified,omitempty"`
	Corrupt  int64         `json:"corrupt,omitempty"`

	// Packets is for UDP only. The sender sets Sent and Unsent, the receiver the other counts. Lost is
	// counted from gaps and, if Announced is set, from the number of packets sent.
	record.Packets
	Highest   int64 `json:"highest,omitempty"`
	Announced int64 `json:"announced,omitempty"` // sender's count, from the cool-down; -1 if unknown

	// Notes holds further counts by name. They are summed over all flows. For counts named "…_bytes", the
	// maximum over all flows is used instead.
	Notes map[string]int64 `json:"-"`
}

// shift adds d to all times, which converts them to another clock.
func (r *EndReport) shift(d int64) {
	for i := range r.Flows {
		f := &r.Flows[i]
		f.Table.Shift(d)
		if f.TCP != nil {
			f.TCP.Series.Shift(d)
		}
	}

	a := r.Responsiveness
	if a != nil {
		for _, times := range [][]int64{a.ForeignAt, a.LoadedAt} {
			for i := range times {
				times[i] += d
			}
		}
	}
}

// Offer is the controller side of engines whose node side uses Endpoints. It runs a load and joins the
// counts of both endpoints. checked is the answer of the engine's check of the load.
func Offer(ctx context.Context, engine string, near, far End, load record.Load, c Conductor,
	checked check.Answer) (*record.Traffic, [2]EndReport, error) {
	var reports [2]EndReport
	if checked.State != check.Yes {
		return nil, reports, fmt.Errorf("offer %s load: %s", load.Protocol, checked.Reason)
	}

	raw, err := Conduct(ctx, engine, load, c, near, far)
	if err != nil {
		return nil, reports, err
	}

	for i, end := range []End{near, far} {
		r := &reports[i]
		r.Flows = make([]FlowReport, len(raw[i])-1)
		for n, part := range raw[i] {
			var into any = r
			if n > 0 {
				into = &r.Flows[n-1]
			}

			if err := json.Unmarshal(part, into); err != nil {
				return nil, reports, fmt.Errorf("read the result of %s: %w", end.Node, err)
			}
		}

		r.shift(-end.Offset)
		r.Usage.Node = end.Node
	}

	t, err := join(engine, load, reports)
	return t, reports, err
}

// join joins the reports of both endpoints, flow by flow.
func join(engine string, load record.Load, reports [2]EndReport) (*record.Traffic, error) {
	keys := FlowsOf(load)
	t := &record.Traffic{
		Engine:  engine,
		Load:    load,
		Details: map[string]string{},
		Ends:    map[string]record.EndUsage{"near": reports[0].Usage, "far": reports[1].Usage},
	}
	for i, side := range sides {
		if len(reports[i].Flows) != len(keys) {
			return nil, fmt.Errorf("join %s load: %s end reported %d flows of %d", load.Protocol, side,
				len(reports[i].Flows), len(keys))
		}

		for k, v := range reports[i].Details {
			t.Details[side+"."+k] = v
		}
	}

	for i, k := range keys {
		s := &reports[0].Flows[i]
		r := &reports[1].Flows[i]
		if !k.Sends("near") {
			s, r = r, s
		}

		f := record.Flow{
			Stream:        k.Stream,
			Direction:     k.Direction,
			Local:         s.Addr,
			Remote:        r.Addr,
			SentBytes:     s.Bytes,
			ReceivedBytes: r.Bytes,
			SenderNs:      s.Ns,
			ReceiverNs:    r.Ns,
			TCP:           s.TCP,
			Sent:          s.Table,
			Received:      r.Table,
			Verified:      r.Verified,
			Corrupt:       r.Corrupt,
		}
		if load.Protocol == "udp" {
			if err := joinPackets(&f, s, r, load); err != nil {
				return nil, err
			}
		}

		t.Flows = append(t.Flows, f)
	}

	if load.RateBps > 0 {
		rate := 0.0
		for _, f := range t.Flows {
			if f.SenderNs > 0 {
				rate += 8e9 * float64(f.SentBytes) / float64(f.SenderNs)
			}
		}

		t.RateError = new(rate/load.RateBps - 1) // relative to the requested rate; nil at full rate
	}

	addCaveats(t)
	t.Responsiveness = cmp.Or(reports[0].Responsiveness, reports[1].Responsiveness)
	t.ShortFlows = cmp.Or(reports[0].ShortFlows, reports[1].ShortFlows)
	return t, CheckShortFlows(t.ShortFlows)
}

// CheckShortFlows returns an error if the counts of short flows contradict each other.
func CheckShortFlows(s *record.ShortFlows) error {
	switch {
	case s == nil: // the load has none
	case s.Started != s.Completed+s.Failed+s.Unfinished:
		return fmt.Errorf("accounts of flows do not add up: %d started, %d completed, %d failed, "+
			"%d unfinished", s.Started, s.Completed, s.Failed, s.Unfinished)
	case s.Asked != s.Confirmed:
		return fmt.Errorf("accounts of flows do not add up: %d bytes asked for, %d confirmed", s.Asked,
			s.Confirmed)
	}
	return nil
}

// addCaveats adds caveats about packets that the tester itself lost, counters that it read late, and
// packets that could not exist on a wire.
func addCaveats(t *record.Traffic) {
	say := func(kind, format string, args ...any) {
		t.Caveats = append(t.Caveats, record.Caveat{Kind: kind, Text: fmt.Sprintf(format, args...)})
	}
	for _, side := range sides {
		// Packets that the receiver's socket dropped did cross the path.
		n := t.Details[side+".socket_drops"]
		if n != "" && n != "0" {
			say("receiver-drops", "%s packets were lost in the %s receiver's own socket buffer: the tester, "+
				"not the path", n, side)
		}
	}

	if t.Load.Protocol != "udp" {
		return
	}

	t.Details["udp_mode"] = UDPMode(t.Load)
	for i, direction := range []string{record.Down, record.Up} {
		lost := slices.ContainsFunc(t.Flows, func(f record.Flow) bool {
			return f.Direction == direction && f.Packets != nil && f.Packets.Lost > 0
		})
		if lost && t.Details[sides[i]+".socket_drops"] == "" {
			say("unknown-drops", "the %s receiver's system does not tell what its socket buffer had no room "+
				"for: what is counted as lost may have been lost there", sides[i])
		}
	}

	for _, side := range sides {
		// Only the CPU time is affected, because UDP counts do not depend on when it was read.
		late := time.Duration(t.Ends[side].EdgeLateNs)
		if late > record.SendersMargin {
			say("late-edge", "the %s end read its CPU time %v late at the start or end of the window", side,
				late.Round(time.Millisecond))
		}
	}

	if Counts(t.Load) {
		say("count-mode", "datagrams were counted by length: their order, duplicates and delays are unknown")
	}

	for _, side := range sides {
		// On a virtual link, a GSO batch crosses as one large packet.
		if t.Details[side+".gso_uncut"] == "true" {
			say("super-packets", "the %s end's device took UDP GSO batches uncut: across virtual links they "+
				"are large packets, not those of a wire", side)
		}
	}
}

// joinPackets joins the counts of a UDP flow. The receiver counts arrivals and gaps, and the sender counts
// packets sent. If no packet of the cool-down arrived, the receiver could not detect losses at the end, so
// they are computed from the sender's count.
func joinPackets(f *record.Flow, s, r *FlowReport, load record.Load) error {
	p := &r.Packets
	p.Sent = s.Sent
	p.Unsent = s.Unsent
	p.Size = load.PacketSize
	tail := s.Sent - r.Highest
	if r.Announced < 0 {
		p.Lost += tail
		if tail > 0 && !Counts(load) {
			g := gaps{}
			for _, b := range p.Gaps {
				g[b.Length] = b
			}

			g.add(tail)
			p.Gaps = g.List()
		}
	}

	if p.Sent != p.Received+p.Lost || p.Lost < 0 {
		return fmt.Errorf("accounts of udp stream %d %s do not add up: sent %d, received %d, lost %d",
			f.Stream, f.Direction, p.Sent, p.Received, p.Lost)
	}

	// A queue that empties may extend the time in which the window's packets arrive, but nothing can shorten
	// it. Silence at the start or the end means loss, not a shorter window.
	f.ReceiverNs = max(r.Ns, s.Ns)
	f.Packets = p
	return nil
}

// Measured returns an error if a load ended without an error but is not a valid measurement. With TCP,
// this is the case if an endpoint read its counters late by at least half a window, so that they mostly
// cover time outside the window. With UDP, it is the case if a sender started that late and sent almost
// nothing.
func Measured(t *record.Traffic) error {
	window := t.Load.Duration
	fault := func(side, did string, late, waited time.Duration) error {
		why := "its machine had no time for it"
		if waited > 0 { // time for which the sender waited for its CPU; known only for test-run frames
			why = fmt.Sprintf("it waited %v for its CPU", waited.Round(time.Millisecond))
		}
		return check.WithHint(fmt.Errorf("the %s end %s %v late at an edge of the window of %v: %s", side,
			did, late.Round(time.Millisecond), window, why),
			"keep other work off that machine, or measure for longer (--set method.duration=5s)")
	}
	for _, side := range sides {
		late := time.Duration(t.Ends[side].EdgeLateNs)
		if t.Load.Protocol == "tcp" && late > 0 && 2*late >= window {
			return fault(side, "read its counts", late, 0)
		}
	}

	for i := range t.Flows {
		f := &t.Flows[i]
		late := window - time.Duration(f.SenderNs)
		if f.Packets != nil && late > 0 && 2*late >= window {
			side := "near"
			if f.Direction == record.Down {
				side = "far"
			}

			waited, _ := time.ParseDuration(t.Details[side+".waited_ns"] + "ns")
			return fault(side, fmt.Sprintf("began to send stream %d", f.Stream), late, waited)
		}
	}

	return nil
}
