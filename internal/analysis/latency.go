package analysis

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/validity"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// summariseLatency computes the latency percentiles of a cell. If every trial has enough probes for a
// percentile, the result is the median of the trials with its interval, as for other metrics. If only all
// probes together are enough, the result is the percentile of the pooled probes, marked "pooled". The
// interval of a pooled percentile is the range of the trials that have enough probes. If no trial has enough
// probes, the interval is the order-statistic interval of the pooled probes. Level is then set, and assumes
// independent probes.
func (g *group) summariseLatency(good []*validity.Graded) {
	idle := probed(good, "idle")
	if len(idle) == 0 {
		idle = probed(validity.LastGood(g.idle), "idle")
	}

	loaded := probed(good, "loaded")
	g.addPercentiles("idle", idle, "the idle path was not measured")
	g.addPercentiles("loaded", loaded, "no latency probe ran beside the load")
	if len(probed(good, "idle")) == 0 && len(idle) > 0 {
		g.cell.Metrics[metrics.ProbeLossIdle] = statistics.Summarise(valuesOf(idle, metrics.ProbeLossIdle))
	}

	g.cell.Latency = map[string]Distribution{}
	g.addDistribution("idle", idle)
	g.addDistribution("loaded", loaded)
	g.cell.Segments = g.segments(good)
}

// probed returns the trials in which a probe of the given kind ran, answered or not.
func probed(trials []*validity.Graded, kind string) []*validity.Graded {
	return slices.DeleteFunc(slices.Clone(trials), func(j *validity.Graded) bool {
		_, ran := j.Metrics.RTTs[kind]
		return !ran
	})
}

func (g *group) addPercentiles(kind string, ran []*validity.Graded, why string) {
	var pool []float64
	trials := slices.DeleteFunc(slices.Clone(ran), func(j *validity.Graded) bool {
		return len(j.Metrics.RTTs[kind]) == 0
	})
	if len(ran) > 0 {
		why = metrics.TooFewProbes(0, metrics.Percentiles[0])
	}

	n := len(trials)
	if n > 0 && n < len(ran) {
		g.caveat("partly-missing", fmt.Sprintf("%s round trip: known in %d of %d trials (%s)", kind, n,
			len(ran), why))
	}

	for _, q := range metrics.Percentiles {
		name := metrics.RTT(kind, q)
		if len(trials) == 0 {
			g.cell.Missing[name] = why
			continue
		}

		values := valuesOf(trials, name)
		if len(values) == len(trials) {
			g.cell.Metrics[name] = statistics.Summarise(values)
			continue
		}

		if pool == nil {
			for _, j := range trials {
				pool = append(pool, j.Metrics.RTTs[kind]...)
			}

			slices.Sort(pool)
		}

		if !statistics.Carries(len(pool), q.Level) {
			g.cell.Missing[name] = metrics.TooFewProbes(len(pool), q)
			continue
		}

		g.cell.Metrics[name] = statistics.Pooled(pool, q.Level, values, len(trials))
	}
}

// addAdded computes the delay that the load adds to the median round-trip time, for each trial. The reference
// is the idle measurement of the trial's block or, if there is none, the median of the path's idle
// measurements.
func (g *group) addAdded() {
	blocks := g.blocks()[metrics.RTTIdle]
	median := statistics.Median(slices.Collect(maps.Values(blocks)))
	name := metrics.RTTLoaded
	for _, j := range g.good() {
		loaded, ok := j.Metrics.Values[name]
		idle, own := blocks[j.Trial.Row.Block]
		switch why := j.Metrics.Missing[name]; {
		case !ok && why != "":
			j.Metrics.Lack(why, metrics.RTTAdded)
		case !ok:
		case own:
			j.Metrics.Set(metrics.RTTAdded, loaded-idle)
		case len(blocks) > 0:
			j.Metrics.Set(metrics.RTTAdded, loaded-median)
		default:
			j.Metrics.Lack("the idle path was not measured", metrics.RTTAdded)
		}
	}
}

// AddedInNoise reports whether the delay that the load adds is too small to measure: its interval includes
// zero, or its median is within the idle path's variation. This variation is the larger of the variation from
// trial to trial and the variation from probe to probe, which is (p90 - p50) divided by the square root of
// the number of trials.
func (c *Cell) AddedInNoise() bool {
	added, ok := c.Metrics[metrics.RTTAdded]
	if !ok {
		return false
	}

	if added.Median <= 0 || added.N > 1 && added.Low <= 0 {
		return true
	}

	p50, ok50 := c.Metrics[metrics.RTTIdle]
	p90, ok90 := c.Metrics[metrics.RTT("idle", metrics.Percentiles[1])]
	noise := (p50.High - p50.Low) / 2
	if ok50 && ok90 {
		noise = max(noise, (p90.Median-p50.Median)/math.Sqrt(float64(max(p50.N, 1))))
	}

	return added.Median <= noise
}

// Range of the histograms, in ns. Values outside this range are in no bucket; the field Beyond counts them.
const (
	histogramLow    = 1
	histogramHigh   = 100e9
	histogramDigits = 3
)

// addDistribution adds a histogram of all probes of the given trials.
func (g *group) addDistribution(kind string, ran []*validity.Graded) {
	var all []*record.Latency
	for _, j := range ran {
		l := j.Trial.Idle
		if kind == "loaded" {
			l = j.Trial.Loaded
		}

		all = append(all, l)
	}

	if d, ok := distribution(all); ok {
		g.cell.Latency[kind] = d
	}
}

// distribution merges several measurements into one histogram. It returns false if there are none.
func distribution(all []*record.Latency) (Distribution, bool) {
	if len(all) == 0 {
		return Distribution{}, false
	}

	d := Distribution{
		Probe: cmp.Or(all[0].Probe, "echo"),
		Spacing: cmp.Or(all[0].Spacing,
			record.Isochronous),
	}
	h := hdrhistogram.New(histogramLow, histogramHigh, histogramDigits)
	for _, l := range all {
		d.Stamps = once(d.Stamps, l.Stamps)
		d.Includes = once(d.Includes, l.Includes)
		for _, ns := range l.RTT {
			d.Sent++
			switch {
			case ns < 0:
				d.Lost++
			case ns < histogramLow || ns > histogramHigh || h.RecordValue(ns) != nil:
				d.Beyond++
			}
		}
	}

	text, err := h.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
	if err != nil {
		return Distribution{}, false
	}

	d.HDR = string(text)
	return d, true
}

// once appends a text unless the list already contains it or it is empty.
func once(list []string, text string) []string {
	if text == "" || slices.Contains(list, text) {
		return list
	}
	return append(list, text)
}

// underLoad groups the TCP cells by path, and grades each direction and the mean of up and down. show selects
// the factors of the labels.
func underLoad(c *factor.Catalogue, cells []*group, show map[string]bool) []UnderLoad {
	var out []UnderLoad
	for _, g := range cells {
		p, ok := g.loadedPath()
		if !ok {
			continue
		}

		f := factor.Direction.With(g.factors, "")
		i := slices.IndexFunc(out, func(u UnderLoad) bool { return maps.Equal(u.Factors, f) })
		if i < 0 {
			i = len(out)
			out = append(out, UnderLoad{
				Factors:    f,
				Label:      labelOf(c, f, show),
				Directions: map[string]LoadedPath{},
			})
		}

		out[i].Directions[factor.Direction.Of(g.factors)] = p
	}

	for i := range out {
		up := out[i].Directions[record.Up].AddedNs
		down := out[i].Directions[record.Down].AddedNs
		if up != nil && down != nil {
			out[i].AddedNs = (*up + *down) / 2
			out[i].Grade = metrics.Bufferbloat(out[i].AddedNs)
			out[i].AddedInNoise = out[i].Directions[record.Up].AddedInNoise &&
				out[i].Directions[record.Down].AddedInNoise
		}
	}

	return out
}

// loadedPath returns the latency under the cell's load. It returns false if the load is not bulk TCP.
func (g *group) loadedPath() (LoadedPath, bool) {
	p := LoadedPath{Cell: g.factors}
	if factor.Protocol.Is(g.factors, factor.UDP) || factor.Engine.Is(g.factors, "flows", "requests") {
		return p, false
	}

	if v, ok := g.cell.Metrics[metrics.RTTAdded]; ok {
		p.AddedNs = &v.Median
		p.Grade = metrics.Bufferbloat(v.Median)
		p.AddedInNoise = g.cell.AddedInNoise()
	}

	v, ok := g.cell.Metrics[metrics.Responsiveness]
	if !ok {
		p.Why = g.cell.Missing[metrics.Responsiveness]
		return p, p.AddedNs != nil || p.Why != ""
	}

	p.RPM = &v.Median
	p.Band = metrics.ResponsivenessBand(v.Median)
	order := []string{metrics.ConfidenceLow, metrics.ConfidenceMedium, metrics.ConfidenceHigh}
	for _, j := range g.good() {
		c := j.Metrics.Confidence // empty for imported results
		if c != "" && (p.Confidence == "" || slices.Index(order, c) < slices.Index(order, p.Confidence)) {
			p.Confidence = c // use the confidence of the least certain trial
		}
	}

	return p, true
}
