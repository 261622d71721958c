package validity

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// Thresholds of the validity gate, as described in docs/reference/reasons.md.
const (
	gateUnsent     = .01         // share of the requested packets that were not sent
	gateThread     = .98         // share of the window in which a thread or core of the tester was busy
	gateForeign    = .10         // CPU time of processes outside of the lab, as a share of one core
	gateSteal      = .05         // CPU time taken by the hypervisor, as a share of all cores
	gateStall      = int64(1e9)  // ns: ten periods of the fast sampler
	gateMoved      = .80         // minimum counted share of the payload, in the check or in the whole load
	gateWindow     = .90         // minimum counted share of the payload, in the window
	gateCeiling    = 1.005       // goodput ÷ ceiling
	gateLateKernel = int64(20e6) // ns; the kernel timestamps these probes, so only their spacing suffers
	gateLateUser   = int64(5e6)  // ns; the delay is part of the measured round-trip time
	gateSkipped    = .20         // share of the probes that were skipped
	gateEdge       = .01         // how late an end read its counters, as a share of the window
)

// trialCheck holds the inputs of the checks of one trial.
type trialCheck struct {
	run  *record.Run
	t    *record.Trial
	m    *metrics.Measured
	ceil ceiling
}

// gate returns the reasons to doubt a successful trial. Each check is a function without side effects, and
// returns nothing for a valid trial.
func gate(s trialCheck) []evidence.Reason {
	reasons := []evidence.Reason{}
	for _, check := range []func(trialCheck) []evidence.Reason{
		testerLimited, busyTester, notInTunnel, wrongMTU, aboveCeiling, accounting, nothingArrived, corrupt,
		throttled, backgroundLoad, samplerStalled, engineStalled, kernelLog, linkFlap, drifting, lateProbe,
		lateEdge,
	} {
		for _, r := range check(s) {
			r.Trial = s.t.ID
			reasons = append(reasons, r)
		}
	}
	return reasons
}

// traffic returns the report of the load generator, or an empty one.
func (s trialCheck) traffic() *record.Traffic { return cmp.Or(s.t.Traffic, &record.Traffic{}) }

// watched returns the nodes with samples.
func (s trialCheck) watched() []string { return slices.Sorted(maps.Keys(s.t.Nodes)) }

// at is short for the observation on which a reason is based.
type at = evidence.Evidence

func because(kind string, fact at, format string, args ...any) []evidence.Reason {
	return []evidence.Reason{{Kind: kind, Text: fmt.Sprintf(format, args...), Facts: []at{fact}}}
}

// testerLimited returns a reason if the tester was the limit. This is the case if the generator did not send
// all requested packets, or if the receiver's buffers or the sender's bursts lost packets. On a machine of
// its own, it is also the case if a thread of the generator was always busy. A busy thread on a shared
// machine proves nothing, because all roles compete for CPU time.
func testerLimited(s trialCheck) []evidence.Reason {
	r := s.m.Values[metrics.UnsentRatio]
	if r > gateUnsent {
		return because(evidence.ReasonTesterLimited, at{Metric: metrics.UnsentRatio, Value: new(r)},
			"the generator could not send %s of the packets that the rate asked for", unit.Percent(r))
	}

	if n, share := ownDrops(s); share > gateUnsent {
		return because(evidence.ReasonTesterLimited, at{Element: "receive buffer", Value: new(float64(n))},
			"%d packets (%s of those sent) were lost in the receiver's own socket buffer: the tester's "+
				"loss, not the path's", n, unit.Percent(share))
	}

	near, far := s.details("burst_most_bytes")
	burst := max(near, far)
	if s.ceil.Bucket > 0 && burst > s.ceil.Bucket && s.lostToBursts(burst) {
		return because(evidence.ReasonTesterLimited, at{Element: BucketElement, Value: new(burst)},
			"the sender came late and sent %.0f bytes at once to make it good, more than the policer's "+
				"bucket of %.0f holds: packets were lost for that, not for the rate", burst, s.ceil.Bucket)
	}

	if s.run.NearShares() {
		return nil
	}

	for _, end := range slices.Sorted(maps.Keys(s.traffic().Ends)) {
		usage := s.traffic().Ends[end]
		for _, ns := range usage.ThreadsNs {
			share := float64(ns) / 1e9 / s.t.Window.Seconds()
			if share >= gateThread {
				return because(evidence.ReasonTesterLimited, at{
					Node:    usage.Node,
					Element: "thread",
					Value:   new(share),
				}, "a thread of the %s end was busy %s of the window", end,
					unit.Percent(share))
			}
		}
	}

	return nil
}

// BucketElement is the element that a reason about the sender's bursts names.
const BucketElement = "policer's bucket"

// details returns a number that both ends of the load reported, or 0 for an end that did not report it.
func (s trialCheck) details(name string) (near, far float64) {
	near, _ = strconv.ParseFloat(s.traffic().Details["near."+name], 64)
	far, _ = strconv.ParseFloat(s.traffic().Details["far."+name], 64)
	return near, far
}

// lostToBursts reports whether a policer dropped packets only because of bursts. This is the case if the sent
// rate was allowed, or if a single burst that overflows the policer's bucket explains all lost bytes.
func (s trialCheck) lostToBursts(burst float64) bool {
	var lost, lostBytes, offered float64
	headers := metrics.HeadersOf(s.t.Row.Factors)
	for _, f := range s.traffic().Flows {
		if f.Packets == nil || f.SenderNs <= 0 {
			continue
		}

		lost += float64(f.Packets.Lost)
		lostBytes += float64(f.Packets.Lost) * float64(f.Packets.Size)
		offered += float64(f.Packets.Sent) * float64(f.Packets.Size-headers) * 8e9 / float64(f.SenderNs)
	}

	return lost > 0 && (offered <= s.ceil.Bps*gateCeiling || lostBytes <= burst-s.ceil.Bucket)
}

// ownDrops returns the number of packets that the receiver's sockets dropped for lack of buffer space during
// the whole load. share is their ratio to the packets sent in the window.
func ownDrops(s trialCheck) (dropped int64, share float64) {
	var sent int64
	for _, f := range s.traffic().Flows {
		if f.Packets != nil {
			sent += f.Packets.Sent
		}
	}

	near, far := s.details("socket_drops")
	if sent > 0 {
		share = (near + far) / float64(sent)
	}

	return int64(near + far), share
}

// wrongMTU returns a reason if the path MTU before the load differs from the MTU that the factors set, or if
// TCP has reduced the size of its segments by the end of the window. It does not check the segments if the
// load sets their size, has small buffers (the kernel limits segments to half of the peer's window), or uses
// an engine that reports the MSS only at the start. Nor does it check them on a path between two machines,
// whose routers are unknown.
func wrongMTU(s trialCheck) []evidence.Reason {
	p := s.t.Path
	if p == nil || p.WantMTU <= 0 {
		return nil
	}

	if p.PathMTU > 0 && p.PathMTU != p.WantMTU {
		return because(evidence.ReasonWrongMTU, at{Value: new(float64(p.PathMTU))},
			"the path's MTU is %d, wanted %d", p.PathMTU, p.WantMTU)
	}

	tr := s.traffic()
	if tr.Load.MSS > 0 || tr.Load.Buffer > 0 && tr.Load.Buffer < 16*p.WantMTU || tr.Engine != factor.Native ||
		s.run.Near().OwnMachine() {
		return nil
	}

	headers := metrics.HeadersOf(s.t.Row.Factors)
	for _, f := range tr.Flows {
		if f.TCP != nil && f.TCP.MSS > 0 && f.TCP.MSS+headers < p.WantMTU {
			return because(evidence.ReasonWrongMTU, at{Metric: "mss", Value: new(float64(f.TCP.MSS))},
				"stream %d %s ended the window with segments of %d bytes, which make packets of %d: the "+
					"path's MTU is to be %d", f.Stream, f.Direction, f.TCP.MSS, f.TCP.MSS+headers, p.WantMTU)
		}
	}

	return nil
}

// accounting returns a reason if the counts of packets or flows do not add up.
func accounting(s trialCheck) []evidence.Reason {
	tr := s.t.Traffic
	if tr == nil {
		if s.t.Row.Kind == record.RowLoad && s.t.Foreign == nil {
			return because(evidence.ReasonAccounting, at{Metric: metrics.Goodput},
				"the engine reported nothing")
		}
		return nil
	}

	why := s.m.Missing[metrics.Goodput]
	if why != "" && s.t.Row.Kind == record.RowLoad {
		return because(evidence.ReasonAccounting, at{Metric: metrics.Goodput}, "%s", why)
	}

	want := max(tr.Load.Streams, 1)
	if tr.Load.Direction == record.Both {
		want *= 2
	}

	if len(tr.Flows) != want {
		return because(evidence.ReasonAccounting, at{Element: "flows", Value: new(float64(len(tr.Flows)))},
			"%d flows were asked for, %d reported", want, len(tr.Flows))
	}

	for _, f := range tr.Flows {
		p := f.Packets
		if p != nil && p.Sent != p.Received+p.Lost {
			stream := fmt.Sprintf("stream %d %s", f.Stream, f.Direction)
			return because(evidence.ReasonAccounting, at{Element: stream},
				"%s: sent %d ≠ received %d + lost %d", stream, p.Sent, p.Received, p.Lost)
		}
	}

	return flowAccounts(tr)
}

// corrupt returns a reason if received bytes differ from the bytes that were sent.
func corrupt(s trialCheck) []evidence.Reason {
	var wrong, checked int64
	for _, f := range s.traffic().Flows {
		wrong += f.Corrupt
		checked += f.Verified
	}

	switch {
	case wrong > 0:
		return because(evidence.ReasonCorrupt, at{Value: new(float64(wrong))},
			"%d bytes arrived that were not sent", wrong)
	case s.traffic().Load.Verify && checked == 0:
		return because(evidence.ReasonCorrupt, at{}, "the content was to be checked, and no byte was")
	}

	return nil
}

// samplerStalled returns a reason if telemetry is missing for a part of the window: a sample is late or
// missing, or the clock is behind after the trial, as in a virtual machine that was paused.
func samplerStalled(s trialCheck) []evidence.Reason {
	for _, node := range s.watched() {
		n := s.t.Nodes[node]
		late := int64(0)
		what := "the sampler on %s came %s late"
		for _, stall := range n.Stalls { // At is the time at which a stall ended
			if stall.At > s.t.Window.Start && stall.At-stall.LateNs < s.t.Window.End {
				late = max(late, stall.LateNs)
			}
		}

		var times []int64 // sampling times of the probe with the most samples
		for _, p := range n.Samples {
			if p.Table != nil && len(p.Table.T) > len(times) {
				times = p.Table.T
			}
		}

		hole := holeIn(s.t.Window, times)
		if hole > late {
			late = hole
			what = "the samples of %s lack %s"
		}

		c := n.Clock
		step := c.OffsetBefore - c.OffsetAfter - c.BoundAfter - c.BoundBefore
		if step > late {
			late = step
			what = "the clock of %s is %s behind after the trial: it was stopped"
		}

		if late >= gateStall {
			return because(evidence.ReasonSamplerStalled, at{
				Node:    node,
				Element: "sampler",
				Value:   new(float64(late)),
			}, what, node, unit.Nanoseconds(float64(late)))
		}
	}
	return nil
}

// engineStalled returns a reason if an end of the load did not read its counters during a part of the window.
func engineStalled(s trialCheck) []evidence.Reason {
	times := map[string][]int64{} // times at which each end read its counters
	for _, f := range s.traffic().Flows {
		sender := "near"
		receiver := "far"
		if f.Direction == record.Down {
			sender, receiver = receiver, sender
		}

		for end, table := range map[string]*record.Table{sender: f.Sent, receiver: f.Received} {
			if table != nil {
				times[end] = append(times[end], table.T...)
			}
		}
	}

	for _, end := range slices.Sorted(maps.Keys(times)) {
		hole := holeIn(s.t.Window, times[end])
		if hole >= gateStall {
			return because(evidence.ReasonEngineStalled, at{
				Node:    s.t.Traffic.Ends[end].Node,
				Element: "load generator",
				Value:   new(float64(hole)),
			}, "the %s end of the load was stopped for %s", end, unit.Nanoseconds(float64(hole)))
		}
	}

	return nil
}

// holeIn returns the length of the longest gap between times that overlaps a window. If the gap is not much
// longer than usual, it returns 0, because some probes are read only once per second.
func holeIn(w record.Window, times []int64) int64 {
	times = slices.Compact(slices.Sorted(slices.Values(times)))
	if len(times) < 2 {
		return 0
	}

	var steps []float64
	longest := int64(0)
	for i, t := range times[1:] {
		steps = append(steps, float64(t-times[i]))
		if min(t, w.End)-max(times[i], w.Start) >= gateStall/10 { // the part of the gap within the window
			longest = max(longest, t-times[i])
		}
	}

	last := times[len(times)-1]
	if last < w.End { // samples are missing at the end of the window
		longest = max(longest, w.End-last)
	}

	if float64(longest) < 3*statistics.Median(steps) {
		return 0
	}

	return longest
}

// drifting returns a reason if the rate at the end of the window differs from the rate at its start.
func drifting(s trialCheck) []evidence.Reason {
	if s.t.Row.Kind != record.RowLoad {
		return nil
	}

	curves, all := metrics.Received(s.t.Traffic)
	if !all {
		return nil
	}

	change, found := statistics.WindowDrift(curves, s.t.Window.Start, s.t.Window.End)
	switch {
	case !found:
		return nil
	case change > 0:
		return because(evidence.ReasonDrift, at{Metric: metrics.Goodput, Value: new(change)},
			"throughput rose by %s from the first to the last third of the window: "+
				"too short a warm-up, or something else changed", unit.Percent(change))
	}

	return because(evidence.ReasonDrift, at{Metric: metrics.Goodput, Value: new(change)},
		"throughput fell by %s from the first to the last third of the window", unit.Percent(-change))
}

// lateProbe returns a reason if the latency probes were late or skipped.
func lateProbe(s trialCheck) []evidence.Reason {
	l := cmp.Or(s.t.Loaded, s.t.Idle)
	late, ok := s.m.Values[metrics.ProbeLate]
	if !ok || l == nil {
		return nil
	}

	limit := max(l.IntervalNs, gateLateKernel)
	if l.Stamps != "kernel" {
		limit = gateLateUser
	}

	if late > float64(limit) {
		return because(evidence.ReasonLateProbe, at{Metric: metrics.ProbeLate, Value: new(late)},
			"one in a hundred latency probes was sent %s late or more", unit.Nanoseconds(late))
	}

	slots := float64(l.SkippedSlots) + float64(len(l.RTT))
	share := float64(l.SkippedSlots) / math.Max(slots, 1)
	if share > gateSkipped {
		return because(evidence.ReasonLateProbe, at{Element: "latency probe", Value: new(share)},
			"the latency probe skipped %s of its packets: it had no CPU time to send them",
			unit.Percent(share))
	}

	return nil
}

// lateEdge returns a reason if an end of a TCP load read its counters so late that its rate covers an
// interval other than the window. It ignores UDP, because a UDP rate counts the datagrams that were sent in
// the window.
func lateEdge(s trialCheck) []evidence.Reason {
	if s.traffic().Load.Protocol != "tcp" {
		return nil
	}

	for _, end := range slices.Sorted(maps.Keys(s.traffic().Ends)) {
		late := s.traffic().Ends[end].EdgeLateNs
		share := float64(late) / 1e9 / s.t.Window.Seconds()
		if late > int64(record.SendersMargin) &&
			share > gateEdge {
			return because(evidence.ReasonLateEdge, at{
				Node:  s.t.Traffic.Ends[end].Node,
				Value: new(float64(late)),
			}, "the %s end read its byte counts %s late at the start or end of the window: "+
				"its machine had no CPU time for it", end, unit.Nanoseconds(float64(late)))
		}
	}
	return nil
}

// flowAccounts returns a reason if the counts of flows do not add up.
func flowAccounts(tr *record.Traffic) []evidence.Reason {
	s := tr.ShortFlows
	switch {
	case s == nil:
		return nil
	case s.Started != s.Completed+s.Failed+s.Unfinished:
		return because(evidence.ReasonAccounting, at{Element: "flows", Value: new(float64(s.Started))},
			"%d flows started ≠ %d completed + %d failed + %d unfinished",
			s.Started, s.Completed, s.Failed, s.Unfinished)
	case s.Asked != s.Confirmed:
		return because(evidence.ReasonAccounting, at{Element: "flows", Value: new(float64(s.Confirmed))},
			"%d bytes of flows were asked for, %d confirmed", s.Asked, s.Confirmed)
	case s.Started == 0:
		return because(evidence.ReasonAccounting, at{Element: "flows", Value: new(0.0)},
			"no flow was begun in the window")
	}
	return nil
}
