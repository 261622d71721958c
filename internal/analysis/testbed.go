package analysis

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// SeriesName identifies a series of samples. The values of a counter are summed over all labels, such as
// cores, so its Label is empty.
type SeriesName struct{ Node, Probe, Label, Stem string }

func (n SeriesName) compare(o SeriesName) int {
	return cmp.Or(strings.Compare(n.Node, o.Node), strings.Compare(n.Probe, o.Probe),
		strings.Compare(n.Label, o.Label), strings.Compare(n.Stem, o.Stem))
}

func (n SeriesName) words() string {
	return strings.TrimPrefix(n.Label+"/"+n.Stem, "/") + " on " + n.Node
}

// Sampled summarises a series in the window of a trial. Low and High are the lowest and the highest value of
// a gauge. For a counter, both are its rate per second.
type Sampled struct {
	Low, High float64
	Counter   bool
	Unit      string
}

// TrialSamples summarises the sampled series of a trial.
type TrialSamples struct {
	Cell   string // key of the cell's factors
	Rate   float64
	Series map[SeriesName]Sampled
}

// samplesOf summarises the declared series of all nodes in a trial.
func samplesOf(t *record.Trial, rate float64) TrialSamples {
	out := TrialSamples{Cell: t.Row.Factors.Key(), Rate: rate, Series: map[SeriesName]Sampled{}}
	for node, data := range t.Nodes {
		for _, s := range data.Samples {
			for _, m := range s.Metrics {
				for _, c := range metrics.ColumnsOf(s.Table, m.Name) {
					name := SeriesName{node, s.Probe, c.Label, m.Name}
					if m.Counter {
						name.Label = ""
					}

					out.add(name, m, c.Curve, t.Window)
				}
			}
		}
	}
	return out
}

func (t *TrialSamples) add(name SeriesName, m record.Metric, c statistics.Curve, w record.Window) {
	if m.Counter {
		if moved, ok := c.Moved(w.Start, w.End); ok {
			sum := t.Series[name].Low + moved/w.Seconds()
			t.Series[name] = Sampled{Low: sum, High: sum, Counter: true, Unit: m.Unit}
		}
		return
	}

	s := Sampled{Low: math.Inf(1), High: math.Inf(-1), Unit: m.Unit}
	for i, at := range c.T {
		if at >= w.Start && at <= w.End {
			s.Low = min(s.Low, c.V[i])
			s.High = max(s.High, c.V[i])
		}
	}

	if s.Low <= s.High {
		t.Series[name] = s
	}
}

// wandering lists the gauges that vary on an idle testbed. Any other gauge counts as a setting if it is
// constant within each trial of both runs.
var wandering = [...]string{
	"loop_rate_hz", "loop_rate_best_hz", "entries", "flows_tracked", "flows_offloaded",
	"flows_offloaded_hw", "flows_new", "flows_old", "flows_unresponsive", "foreign_processes",
	"free_bytes", "available_bytes", "buffers_bytes", "cached_bytes", "slab_bytes",
	"slab_unreclaimable_bytes", "swap_free_bytes", "power_w", "backlog_bytes", "qlen_packets",
	"memory_bytes", "peak_delay_ns", "average_delay_ns", "temperature_c", "handshake_age_ns", "backlog",
	"input_queue", "process_queue",
}

// otherwise is the factor by which the values of two runs must differ for a varying series to be listed. A
// smaller difference is unlikely to explain different results.
const otherwise = 1.5

// sampledChanges compares the series in the cells that both runs have. A setting is listed if it differs. A
// counter is listed only if both its rate and its rate per bit of load differ. A counter never counts as a
// cause, because its change is the effect of a setting or of something that was not recorded.
func sampledChanges(a, b *Document) []Change {
	left := byCell(a.Sampled)
	right := byCell(b.Sampled)
	settings := map[SeriesName]*rangePair{}
	moved := map[SeriesName]*rangePair{}
	stayed := map[SeriesName]bool{} // series that differ too little in at least one cell
	for _, cell := range keys(left, right) {
		x := left[cell]
		y := right[cell]
		if len(x) == 0 || len(y) == 0 {
			continue
		}

		for name := range seriesOf(x, y) {
			p := &rangePair{name, rangeIn(name, x), rangeIn(name, y)}
			switch {
			case p.setting():
				if p.differs() {
					settings[name] = p.joined(settings[name])
				}
			case p.differs() && p.apart(x, y):
				moved[name] = p.joined(moved[name])
			default:
				stayed[name] = true
			}
		}
	}

	maps.DeleteFunc(moved, func(name SeriesName, _ *rangePair) bool {
		return stayed[name] || settings[name] != nil
	})
	return append(changesOf("setting", settings, true), changesOf("counter", moved, false)...)
}

func byCell(all []TrialSamples) map[string][]TrialSamples {
	out := map[string][]TrialSamples{}
	for _, t := range all {
		out[t.Cell] = append(out[t.Cell], t)
	}
	return out
}

// seriesOf returns the names of all series in the trials.
func seriesOf(sides ...[]TrialSamples) map[SeriesName]bool {
	names := map[SeriesName]bool{}
	for _, trials := range sides {
		for _, t := range trials {
			for name := range t.Series {
				names[name] = true
			}
		}
	}
	return names
}

// rangePair holds the ranges of a series over the trials of a cell, for two runs.
type rangePair struct {
	name SeriesName
	a, b seriesRange
}

// seriesRange summarises a series over all trials of one run. n is 0 if the run lacks the series.
type seriesRange struct {
	Sampled
	n      int
	absent bool // the series is missing from a trial that sampled the probe
	still  bool // the series is constant within each trial
}

func rangeIn(name SeriesName, trials []TrialSamples) seriesRange {
	r := seriesRange{Sampled: Sampled{Low: math.Inf(1), High: math.Inf(-1)}, still: true}
	for _, t := range trials {
		s, ok := t.Series[name]
		if !ok {
			r.absent = r.absent || sampledProbe(name, t)
			continue
		}

		r.n++
		r.Low = min(r.Low, s.Low)
		r.High = max(r.High, s.High)
		r.Counter = s.Counter
		r.Unit = s.Unit
		r.still = r.still && s.Low == s.High
	}
	return r
}

// sampledProbe reports whether the probe of a series was read in the window of a trial. The trial shows this
// if it has another gauge of the same probe and node. Counters do not show it, because their rates need only
// samples before and after the window. A short window may contain no sample.
func sampledProbe(name SeriesName, t TrialSamples) bool {
	for other, s := range t.Series {
		if other.Node == name.Node && other.Probe == name.Probe && !s.Counter {
			return true
		}
	}
	return false
}

// setting reports whether the series counts as a setting.
func (p *rangePair) setting() bool {
	return !p.a.Counter && !p.b.Counter && p.a.still && p.b.still &&
		!slices.Contains(wandering[:], p.name.Stem)
}

// differs reports whether the ranges of the two runs do not overlap. If only one run has the series, differs
// returns true only if both runs sampled the probe and all trials of that run have the series.
func (p *rangePair) differs() bool {
	switch {
	case p.a.n > 0 && p.b.n > 0:
		return p.a.High < p.b.Low || p.b.High < p.a.Low
	case p.a.Counter || p.b.Counter:
		return false
	case p.a.n > 0:
		return p.b.absent && !p.a.absent
	}
	return p.a.absent && !p.b.absent
}

// apart reports whether the series differs between the runs by more than it differs between similar trials.
// For a counter, the difference must not be merely proportional to the rates of the loads.
func (p *rangePair) apart(x, y []TrialSamples) bool {
	if p.a.n < 3 || p.b.n < 3 {
		return false
	}

	ratio := func(a, b float64) float64 { return math.Abs(math.Log(max(b, 1e-9) / max(a, 1e-9))) }
	one := (p.a.Low + p.a.High) / 2
	two := (p.b.Low + p.b.High) / 2
	if ratio(one, two) < math.Log(otherwise) {
		return false
	}

	first := meanRate(x)
	second := meanRate(y)
	return !p.a.Counter || first <= 0 || second <= 0 || ratio(one/first, two/second) >= math.Log(otherwise)
}

func meanRate(trials []TrialSamples) float64 {
	sum := 0.0
	for _, t := range trials {
		sum += t.Rate
	}
	return sum / float64(len(trials))
}

// joined returns the pair merged with the pair of another cell.
func (p *rangePair) joined(other *rangePair) *rangePair {
	if other == nil {
		return p
	}

	for _, side := range [][2]*seriesRange{{&p.a, &other.a}, {&p.b, &other.b}} {
		side[0].Low = min(side[0].Low, side[1].Low)
		side[0].High = max(side[0].High, side[1].High)
		side[0].n += side[1].n
	}
	return p
}

// words describes the range of the series in one run.
func (r seriesRange) words() string {
	if r.n == 0 {
		return "none"
	}

	say := unit.ScaleOf(r.Unit, r.High).Text
	per := ""
	if r.Counter {
		per = "/s"
	}

	low := say(r.Low)
	high := say(r.High)
	if low != high {
		return low + " to " + high + per
	}

	return say(r.High) + per
}

// changesOf converts pairs whose ranges differ to changes.
func changesOf(kind string, found map[SeriesName]*rangePair, cause bool) []Change {
	var out []Change
	for _, name := range slices.SortedFunc(maps.Keys(found), SeriesName.compare) {
		p := found[name]
		out = append(out, Change{kind, name.words(), p.a.words(), p.b.words(), cause})
	}
	return out
}
