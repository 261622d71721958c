package foreign

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// pingSeries lists the series of round-trip times to read. These are the ICMP series, one for each host. If
// the file has no ICMP series, these are all series of round-trip times.
func (f *flentFile) pingSeries() []string {
	var icmp, all []string
	for _, n := range slices.Sorted(maps.Keys(f.Results)) {
		head, ok := flentSeries(n)
		if !ok || !strings.HasPrefix(n, flentPing) || strings.HasSuffix(head, " avg") {
			continue
		}

		all = append(all, n)
		if strings.HasPrefix(n, flentICMP) {
			icmp = append(icmp, n)
		}
	}

	if len(icmp) > 0 {
		return icmp
	}

	return all
}

// addPings sets the trial's latency from one series of round-trip times. If there are several series, it uses
// the worst one, and adds a caveat that lists the values of all series. The mean of all series, or the series
// of another host, would hide the effect of the load on some hosts.
func (f *flentFile) addPings(r *Result) {
	var worst *Result
	var worstOf string
	var notes []string
	rank := math.Inf(-1)
	series := f.pingSeries()
	for _, n := range series {
		of := Result{Traffic: r.Traffic, Window: r.Window, Began: r.Began}
		split(&of, f.probes(n, &of))
		x := pingsOf(&of)
		if len(notes) < maxPingNotes {
			notes = append(notes, name(n)+": "+x.text)
		}

		if worst == nil || x.rank > rank {
			worst, worstOf, rank = &of, name(n), x.rank
		}
	}

	if worst == nil {
		return
	}

	r.Idle = worst.Idle
	r.Loaded = worst.Loaded
	r.Window = worst.Window
	r.Foreign.Lacks = append(r.Foreign.Lacks, worst.Foreign.Lacks...)
	more := len(series) - len(notes)
	if more > 0 {
		notes = append(notes, fmt.Sprintf("%d more", more))
	}

	if len(series) > 1 {
		r.Caveats = append(r.Caveats, record.Caveat{
			Kind: "several-pings",
			Text: fmt.Sprintf("round trips "+
				"are those of the worst of %d series, %s; %s", len(series), worstOf, strings.Join(notes,
				"; ")),
		})
	}
}

// maxPingNotes is the maximum number of series listed in a caveat.
const maxPingNotes = 20

// pings holds the rank and the description of a series of round-trip times.
type pings struct {
	rank float64
	text string
}

// pingsOf ranks a series by the delay that the load adds to its shortest round trip or, without a load, by
// its median. A series without replies under load ranks last.
func pingsOf(r *Result) pings {
	answered := func(l *record.Latency) (out []float64) {
		if l == nil {
			return nil
		}

		for _, rtt := range l.RTT {
			if rtt >= 0 {
				out = append(out, float64(rtt))
			}
		}
		return out
	}
	idle := answered(r.Idle)
	loaded := answered(r.Loaded)
	var words []string
	if len(idle) > 0 {
		words = append(words, "idle "+unit.Nanoseconds(statistics.Median(idle)))
	}

	if len(loaded) > 0 {
		words = append(words, "under load "+unit.Nanoseconds(statistics.Median(loaded)))
	}

	x := pings{rank: math.Inf(-1), text: cmp.Or(strings.Join(words, ", "), "no answer")}
	switch {
	case r.Traffic == nil && len(idle) > 0:
		x.rank = statistics.Median(idle)
	case len(loaded) > 0:
		x.rank = statistics.Median(loaded) - slices.Min(append(idle, loaded...))
	case len(idle) > 0:
		x.text += ", no answer under load"
	}

	return x
}

// probes returns the probes of a series in order. If the file has no single probes, it returns one probe for
// each step, with the mean of that step.
func (f *flentFile) probes(series string, r *Result) *record.Latency {
	zero := float64(r.Began.UnixNano()) / 1e9
	all := &record.Latency{
		Probe:  "echo",
		Stamps: "user",
		Includes: "as flent's " +
			cmp.Or(string(f.Meta.Series[series].Runner), "runner") + " told the series " + name(series),
	}
	if strings.HasPrefix(series, flentICMP) {
		all.Probe = "icmp"
	}

	seq := math.NaN()
	add := func(at, rtt float64) {
		all.SentAt = append(all.SentAt, int64(math.Round(at*1e9)))
		all.RTT = append(all.RTT, int64(math.Round(rtt*1e9)))
	}
	for _, p := range f.Raw[series] {
		at := float64(p.T) - zero
		if p.Val == nil || p.Seq == nil || !finite(float64(*p.Val), maxSeconds) || !finite(at, maxSeconds) {
			continue
		}

		rtt := float64(*p.Val) / 1e3
		gap := float64(*p.Seq) - seq
		if gap > 1 && gap < maxTrials && len(all.RTT) < maxObjects {
			for range int(gap) - 1 {
				all.SentAt, all.RTT = append(all.SentAt, int64((at-rtt)*1e9)), append(all.RTT, -1)
			}
		}

		seq = float64(*p.Seq)
		add(at-rtt, rtt)
	}

	if len(all.RTT) == 0 {
		for i, v := range f.Results[series] {
			if finite(float64(v), maxSeconds) {
				add(float64(f.X[i]), float64(v)/1e3)
			}
		}

		r.lack("single round trips: they are means of a step")
	}

	return all
}

// split divides the probes of a trial. Probes before the load belong to the idle path, and probes in the
// window belong to the loaded path. Other probes are dropped.
func split(r *Result, all *record.Latency) {
	if n := len(all.SentAt); n > 1 && all.IntervalNs == 0 {
		all.IntervalNs = max((all.SentAt[n-1]-all.SentAt[0])/int64(n-1), 0)
	}

	if r.Traffic == nil {
		n := len(all.SentAt)
		if n > 0 {
			r.Idle = all
			r.Window.End = max(slices.Max(all.SentAt), 0)
			r.Window.Stop = r.Window.End
		}
		return
	}

	r.Idle, r.Loaded = sentBefore(all, r.Window.Start), sentWhen(all, r.Window.Holds)
}

// sentWhen returns the probes sent at the selected times, or nil if there are none.
func sentWhen(all *record.Latency, of func(at int64) bool) *record.Latency {
	l := *all
	l.RTT, l.SentAt = nil, nil
	for i, at := range all.SentAt {
		if of(at) {
			l.RTT, l.SentAt = append(l.RTT, all.RTT[i]), append(l.SentAt, at)
		}
	}

	if len(l.RTT) == 0 {
		return nil
	}

	return &l
}

func sentBefore(all *record.Latency, load int64) *record.Latency {
	return sentWhen(all, func(at int64) bool { return at < load })
}
