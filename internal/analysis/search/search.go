// Package search applies package method to records of trials: it evaluates a search for a rate and determines
// the next trial.
package search

import (
	"cmp"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/method"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// SevereUnsent is the share of the requested frames that may be unsent without counting as lost. A smaller
// share is due to the generator's timing at the edges of the window, not to its speed. RFC 9971, "Measurer",
// counts severe deviations from the intended load as loss.
const SevereUnsent = 0.001

// PacedShortfall is the share by which the goodput of paced TCP may fall short of its rate in a low-loss
// trial, because of the kernel's pacing and TCP's start.
const PacedShortfall = 0.05

// ShapedShortfall is the share by which the goodput of TCP may fall short if a setting of the path limits
// TCP's rate. It is larger than PacedShortfall, because the rate in such a setting includes headers, even
// those of a tunnel.
const ShapedShortfall = 0.15

// SearchConfig returns the input of a search. greatest is the default maximum load.
func SearchConfig(s *record.Search, unit string, greatest float64) method.Config {
	c := method.Config{Min: s.MinPPS, Max: s.MaxPPS, Warmup: s.Warmup, MaxTime: s.MaxTime}
	switch unit {
	case record.UnitBits:
		c.Min = s.MinBps
		c.Max = s.MaxBps
	case record.UnitFlows:
		c.Min = s.MinHz
		c.Max = s.MaxHz
	}

	c.Max = cmp.Or(c.Max, greatest)
	for _, g := range s.Goals {
		if unit == record.UnitBits {
			g.LossRatio = max(g.LossRatio, PacedShortfall)
			if s.Knob != "" {
				g.LossRatio = max(g.LossRatio, ShapedShortfall)
			}
		}

		c.Goals = append(c.Goals, g)
	}

	return c
}

// SearchTrial converts a trial to the input of a search. idle is the latency of the idle path. Only goals
// that limit the added delay need it, so it may be nil for other goals.
func SearchTrial(m record.Method, t *record.Trial, idle *record.Latency) method.Trial {
	s := t.Search
	out := method.Trial{TrialInput: s.TrialInput, Loss: 1}
	if m.Search != nil && m.Search.CountPauses {
		out.Effective = s.Duration + m.Warmup + m.Cooldown
	}

	switch s.Unit {
	case record.UnitBits:
		out.Loss = shortfall(t)
	case record.UnitFlows:
		out.Loss = lostConnections(t)
	}

	sum, counted := PacketsOf(t.Traffic)
	asked := sum.Sent + sum.Unsent
	if counted && asked > 0 {
		missing := sum.Unsent
		slack := int64(SevereUnsent*float64(asked)) + 2*int64(len(t.Traffic.Flows))
		if missing <= slack || s.Test == record.TestBackToBack { // unsent frames do not count in a burst
			asked = sum.Sent
			missing = 0
		}

		out.Loss = float64(sum.Lost+missing) / float64(max(asked, 1))
	}

	if t.Idle != nil {
		idle = t.Idle
	}

	if added, ok := addedP99(t.Loaded, idle); ok {
		out.Delay = added
		out.HasDelay = true
	}

	return out
}

// shortfall returns the share of a paced rate that did not arrive.
func shortfall(t *record.Trial) float64 {
	if t.Traffic == nil {
		return 1
	}

	up, down, _ := t.Traffic.Goodput() // unknown goodput counts as zero
	return min(max(1-(up+down)/(t.Search.Load*float64(max(t.Search.Interfaces, 1))), 0), 1)
}

// GrowingBacklog is the share of the flows due in a window that may be incomplete at its end without counting
// as lost, because the number of flows in progress differs between the start and the end of the window.
const GrowingBacklog = 0.05

// lostConnections returns the share of the flows that failed or were late. If more flows are incomplete at
// the end than GrowingBacklog allows, and their share is larger, it returns their share.
func lostConnections(t *record.Trial) float64 {
	if t.Traffic == nil || t.Traffic.ShortFlows == nil || t.Traffic.ShortFlows.Started == 0 {
		return 1
	}

	s := t.Traffic.ShortFlows
	lost := min(float64(s.Failed+s.Tardy)/float64(s.Started), 1)
	behind := 1 - float64(s.Completed+s.Carried)/float64(s.Started)
	if behind > GrowingBacklog {
		return max(lost, behind)
	}

	return lost
}

// addedP99 returns the 99th percentile of the round-trip times under load minus the median of the round-trip
// times on the idle path. It returns false if there are too few probes.
func addedP99(loaded, idle *record.Latency) (time.Duration, bool) {
	if loaded == nil || idle == nil {
		return 0, false
	}

	during := metrics.Answered(loaded)
	before := metrics.Answered(idle)
	if !statistics.Carries(len(during), .99) || !statistics.Carries(len(before), .5) {
		return 0, false
	}

	return time.Duration(max(statistics.QuantileSorted(during, .99)-statistics.MedianSorted(before), 0)), true
}

// PacketsOf returns the sum of the flows' packet counts. ok is false if a flow did not count packets.
func PacketsOf(tr *record.Traffic) (sum record.Packets, ok bool) {
	if tr == nil || len(tr.Flows) == 0 {
		return sum, false
	}

	for _, f := range tr.Flows {
		p := f.Packets
		if p == nil {
			return record.Packets{}, false
		}

		sum.Sent += p.Sent
		sum.Unsent += p.Unsent
		sum.Received += p.Received
		sum.Lost += p.Lost
	}
	return sum, true
}

// LimitsOf returns the input of the search that a trial belongs to, with the limits that applied when the
// search started.
func LimitsOf(m record.Method, t *record.SearchTrial) method.Config {
	c := SearchConfig(m.Search, t.Unit, t.Max)
	c.Min = t.Min
	c.Max = t.Max
	return c
}

// FoundRate returns the conditional throughput of a search for its first goal, in payload bits per second
// over all interfaces. ok is false if the goal has no lower bound. The result may be irregular.
func FoundRate(m record.Method, trials []*record.Trial, idle *record.Latency) (bps float64, ok bool) {
	first := trials[0]
	r := LimitsOf(m, first.Search).Outcome(history(m, trials, record.TestThroughput, idle)).Results[0]
	if r.Throughput == nil {
		return 0, false
	}

	bps = *r.Throughput * PayloadBits(first) * float64(max(first.Search.Interfaces, 1))
	return bps, bps > 0
}

// history returns the successful trials of one test of a search.
func history(m record.Method, trials []*record.Trial, test string, idle *record.Latency) []method.Trial {
	var out []method.Trial
	for _, t := range trials {
		if t.Status == record.TrialOK && t.Search != nil && t.Search.Test == test {
			out = append(out, SearchTrial(m, t, idle))
		}
	}
	return out
}

// NextOfSearch returns the next trial of a row's search after the given trials. Failed trials do not count.
// more is false if the search has ended. greatest is the tester's ceiling, which is used if the plan sets no
// maximum load. interfaces is the number of interfaces that are loaded at the same time. A search keeps the
// limits with which it started.
func NextOfSearch(m record.Method, unit string, greatest float64, interfaces int, trials []*record.Trial,
	idle *record.Latency) (next record.SearchTrial, more bool, err error) {
	next = record.SearchTrial{
		SearchLimits: record.SearchLimits{Unit: unit, Interfaces: interfaces},
		Test:         record.TestThroughput,
		Number:       1,
	}
	for _, t := range trials {
		if t.Search != nil {
			greatest = t.Search.Max
			if t.Status == record.TrialOK {
				next.Number++
			}
		}
	}

	c := SearchConfig(m.Search, unit, greatest)
	if len(trials) > 0 {
		c.Max = greatest
	}

	next.Min = c.Min
	next.Max = c.Max
	at := func(s record.TrialInput, test string) record.SearchTrial {
		next.Test = test
		next.TrialInput = s
		return next
	}
	done := history(m, trials, record.TestThroughput, idle)
	step, more, err := c.Next(done)
	if more || err != nil {
		return at(step, record.TestThroughput), more, err
	}

	if unit != record.UnitPackets { // RFC 2544's tests apply only to frames
		return record.SearchTrial{}, false, nil
	}

	for _, further := range []struct {
		test  string
		asked *record.Test
		rate  *float64
		next  func(rate float64, d time.Duration, repeats int, history []method.Trial) (record.TrialInput,
			bool)
	}{
		{record.TestLatency, m.Search.Latency, c.Outcome(done).Results[0].Lower, method.Latency},
		{record.TestFrameLoss, m.Search.FrameLoss, &c.Max, method.FrameLoss},
		{record.TestBackToBack, m.Search.BackToBack, &c.Max, method.BackToBack},
	} {
		t := further.asked
		if t != nil && further.rate != nil {
			had := history(m, trials, further.test, idle)
			if step, more := further.next(*further.rate, t.Duration, t.Repeats, had); more {
				return at(step, further.test), true, nil
			}
		}
	}

	return record.SearchTrial{}, false, nil
}

// PayloadBits returns the number of payload bits in one unit of load: the payload of a packet (the mean if
// sizes differ), 1 for bits, or 0 for flows.
func PayloadBits(t *record.Trial) float64 {
	switch t.Search.Unit {
	case record.UnitBits:
		return 1
	case record.UnitFlows:
		return 0
	}

	sizes := t.Row.Factors.PacketSizes()
	if sizes == nil {
		return 0
	}

	return 8 * (record.MeanSize(sizes) - float64(metrics.IPOf(t.Row.Factors, factor.IP).Headers(true)))
}
