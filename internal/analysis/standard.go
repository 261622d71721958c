package analysis

import (
	"fmt"
	"slices"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/method"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/search"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/validity"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// tests evaluates the RFC 2544 tests that follow the search: latency, frame loss and back-to-back frames.
func (r *reading) tests(s *SearchView, found method.Outcome) {
	of := map[string][]*validity.Graded{}
	for _, j := range r.trials {
		if j.Grade != evidence.GradeFailed {
			of[j.Trial.Search.Test] = append(of[j.Trial.Search.Test], j)
		}
	}

	m := r.run.Design.Method
	shares := method.LatencyShares()
	for i, share := range shares {
		var at []*validity.Graded
		for k, j := range of[record.TestLatency] {
			if k%len(shares) == i {
				at = append(at, j)
			}
		}

		if len(at) == 0 {
			continue
		}

		l := LatencyAt{
			Share: share,
			Load:  at[0].Trial.Search.Load,
			Loss:  statistics.Summarise(lossesOf(m, at)),
		}
		l.P50 = summaryOf(at, metrics.RTTLoaded)
		l.P99 = summaryOf(at, metrics.RTTLoadedP99)
		s.Latency = append(s.Latency, l)
	}

	s.FrameLoss = frameLoss(m, s.Max, of[record.TestFrameLoss])
	all := of[record.TestBackToBack]
	if len(all) > 0 && m.Search.BackToBack != nil {
		s.BackToBack = append(s.BackToBack, backToBack(m, s.Max, all, found))
	}
}

func lossesOf(m record.Method, trials []*validity.Graded) []float64 {
	var out []float64
	for _, j := range trials {
		out = append(out, search.SearchTrial(m, j.Trial, nil).Loss)
	}
	return out
}

// summaryOf summarises a metric over trials. It returns nil if no trial has the metric.
func summaryOf(trials []*validity.Graded, metric string) *statistics.Value {
	values := valuesOf(trials, metric)
	if len(values) == 0 {
		return nil
	}
	return new(statistics.Summarise(values))
}

// frameLoss groups the trials of the loss test by load, highest load first.
func frameLoss(m record.Method, greatest float64, trials []*validity.Graded) []FrameLoss {
	var out []FrameLoss
	at := map[float64][]*validity.Graded{}
	for _, j := range trials {
		load := j.Trial.Search.Load
		if at[load] == nil {
			out = append(out, FrameLoss{Share: load / greatest, Load: load})
		}

		at[load] = append(at[load], j)
	}

	for i := range out {
		out[i].Loss = statistics.Summarise(lossesOf(m, at[out[i].Load]))
	}

	return out
}

func backToBack(m record.Method, greatest float64, trials []*validity.Graded,
	found method.Outcome) BackToBack {
	var history []method.Trial
	for _, j := range trials {
		history = append(history, search.SearchTrial(m, j.Trial, nil))
	}

	ended, _ := method.Bursts(m.Search.BackToBack.Duration, history)
	var out BackToBack
	var frames, rates []float64
	for _, b := range ended {
		out.Limited = out.Limited || b.Limited
		if b.Index < 0 {
			continue
		}

		sum, _ := search.PacketsOf(trials[b.Index].Trial.Traffic)
		frames = append(frames, float64(sum.Sent))
		rates = append(rates, min(greatest, sentRate(trials[b.Index].Trial.Traffic)))
	}

	if len(frames) == 0 {
		return out
	}

	out.Frames = new(statistics.Summarise(frames))
	out.Rate = statistics.Median(rates)
	if out.Rate <= 0 {
		return out
	}

	mean := 0.0
	for _, f := range frames {
		mean += f / float64(len(frames))
	}

	out.BufferSeconds = mean / out.Rate
	lower := found.Results[0].Lower
	if lower != nil {
		out.CorrectedSeconds = new(out.BufferSeconds * max(0, 1-*lower/out.Rate))
	}

	return out
}

// sentRate returns the actual sending rate in packets per second, in the direction with the highest rate.
func sentRate(t *record.Traffic) float64 {
	if t == nil {
		return 0
	}

	pps := map[string]float64{}
	most := 0.0
	for _, f := range t.Flows {
		if f.Packets != nil && f.SenderNs > 0 {
			pps[f.Direction] += float64(f.Packets.Sent) * 1e9 / float64(f.SenderNs)
			most = max(most, pps[f.Direction])
		}
	}

	return most
}

// searchNotes explains the numbers of a search, as RFC 9971 requires for a report.
func searchNotes(run *record.Run) []string {
	m := run.Design.Method
	notes := []string{
		"Loads and throughputs are packets per second of one loaded interface; × interfaces gives those of " +
			"all, which is 1 for traffic in one direction and 2 for both.",
		"A width is (upper bound - lower bound) ÷ upper bound.",
		"A trial's loss ratio is 1 - received ÷ intended: what the generator could not send is lost, " +
			"unless it is " + unit.Percent(search.SevereUnsent) +
			" or less (its own timing), and duplicates are not received.",
	}
	if m.Search.CountPauses {
		notes = append(notes, fmt.Sprintf("A trial's effective duration is its duration + %s of warm-up and "+
			"pause, as FD.io CSIT counts it.", m.Warmup+m.Cooldown))
	} else {
		notes = append(notes, "A trial's effective duration is its duration.")
	}

	add := func(applies bool, text string) {
		if applies {
			notes = append(notes, text)
		}
	}
	some := func(of func(record.Factors) bool) bool { return slices.ContainsFunc(run.Design.Cells, of) }
	add(m.Search.MaxPPS == 0, "The greatest load is what the tester alone reached without a router, before "+
		"the run, with packets of the nearest size; with the engine xdp, where that is not known, it is "+
		"10 Mpps, more than one core sends.")
	add(mixed(run),
		"Packets of IMIX have several sizes: their throughput in bits is that of the mean payload.")
	add(some(func(f record.Factors) bool { return record.SearchUnit(f) == record.UnitBits }),
		"TCP is paced at the load, in bits of payload per second. Its loss ratio is the share of that rate "+
			"that did not arrive, and every goal allows it "+unit.Percent(search.PacedShortfall)+".")
	add(some(func(f record.Factors) bool {
		return !run.Design.Searches(record.Assignment{Kind: record.RowLoad, Factors: f})
	}), "A cell whose rate is a share of what was found is not searched: it is one load at that share of "+
		"the first goal's throughput, in the median of the searches before it.")
	add(some(func(f record.Factors) bool { return record.SearchUnit(f) == record.UnitFlows }),
		"New TCP connections are begun at the load, each second. The loss ratio is the share of those that "+
			"failed, or were not made within 200 ms of when they were due; where fewer flows were completed "+
			"in the window than were due in it, by more than "+unit.Percent(search.GrowingBacklog)+
			", all those missing are lost.")
	for _, g := range m.Search.Goals {
		if g.MaxDelay > 0 {
			notes = append(notes, fmt.Sprintf("To goal %s a trial is high-loss also when the 99th "+
				"percentile of the round-trip time under load is more than %s above the median of the "+
				"idle path.", g.Name, g.MaxDelay))
		}
	}

	return notes
}

// mixed reports whether a cell has packets of several sizes.
func mixed(run *record.Run) bool {
	return slices.ContainsFunc(run.Design.Cells,
		func(f record.Factors) bool { return len(f.PacketSizes()) > 1 })
}

// deviations lists the deviations from RFC 2544. For a strict run, it lists only those that no setting can
// remove.
func deviations(run *record.Run) []string {
	m := run.Design.Method
	s := m.Search
	var out []string
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	for _, g := range s.Goals {
		if g.FinalDuration < time.Minute {
			add("goal %s: trials of %s, not 60 s (section 24)", g.Name, g.FinalDuration)
		}

		if g.LossRatio > 0 || g.ExceedRatio > 0 {
			add("goal %s: a loss of %s is allowed in each trial, and more of it in %s of the time at a "+
				"load; RFC 2544 allows none (section 26.1)",
				g.Name, unit.Percent(g.LossRatio), unit.Percent(g.ExceedRatio))
		}
	}

	if m.Warmup > 0 {
		add("%s of traffic runs before the frames that count, without a pause between; RFC 2544 sends "+
			"learning frames and waits 2 s (section 23)", m.Warmup)
	}

	if m.Cooldown < 7*time.Second {
		add("residual frames are waited for up to 0.5 s and the next trial comes %s later; RFC 2544 waits 2 "+
			"s and 5 s (section 23)", m.Cooldown)
	}

	if t := s.Latency; t != nil {
		if t.Duration < 2*time.Minute || t.Repeats < 20 {
			add("latency: %d × %s at each rate, not 20 × 120 s (section 26.2)", t.Repeats, t.Duration)
		}

		add("latency is the round trip of a probe beside the frames, many times per trial, not the one-way " +
			"delay of one tagged frame (section 26.2)")
	}

	if t := s.FrameLoss; t != nil && t.Duration < time.Minute {
		add("frame loss: trials of %s, not 60 s (section 24)", t.Duration)
	}

	if t := s.BackToBack; t != nil {
		if t.Duration < 2*time.Second || t.Repeats < 50 {
			add("back-to-back: %d repeats of bursts up to %s, not 50 of 2 s (section 26.4)", t.Repeats,
				t.Duration)
		}

		add("back-to-back: bursts come as fast as the tester sends, at the greatest load at most; a " +
			"virtual link has no shortest gap (section 26.4)")
	}

	if mixed(run) {
		add("IMIX: frames of several sizes in turn; RFC 2544 tests one size at a time (section 9)")
	}

	if run.Tested().CPUs == record.CPUsShared {
		add("the tester is not a device of its own: it shares the machine with the router (section 6)")
	}

	add("no filters, broadcasts, management queries or routing updates run beside the frames (section 11), " +
		"and one pair of addresses is used (section 12)")
	return out
}
