package analysis

import (
	"fmt"
	"math"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// answered returns the round-trip times of the probes that were answered, sorted, in nanoseconds.
func answered(l *record.Latency) []float64 {
	if l == nil {
		return nil
	}
	out := make([]float64, 0, len(l.RTT))
	for _, ns := range l.RTT {
		if ns >= 0 {
			out = append(out, float64(ns))
		}
	}
	slices.Sort(out)
	return out
}

// lostShare is the share of the probes that got no answer.
func lostShare(l *record.Latency) float64 {
	if len(l.RTT) == 0 {
		return 0
	}
	lost := 0
	for _, ns := range l.RTT {
		if ns < 0 {
			lost++
		}
	}
	return float64(lost) / float64(len(l.RTT))
}

// quantiles returns the values at QuantileLevels of sorted values, as far as their number carries them.
func quantiles(sorted []float64) []float64 {
	var out []float64
	for _, q := range QuantileLevels {
		if q > .5 && !Carries(len(sorted), q) || len(sorted) == 0 {
			break
		}
		out = append(out, quantileSorted(sorted, q))
	}
	return out
}

// lateP99 is the 99th percentile of the probe's own lateness; below 100 probes it is the largest.
func lateP99(l *record.Latency) (float64, bool) {
	if l == nil || len(l.Late) == 0 {
		return 0, false
	}
	late := make([]float64, len(l.Late))
	for i, ns := range l.Late {
		late[i] = float64(ns)
	}
	slices.Sort(late)
	return quantileSorted(late, .99), true
}

// spacingP99 is the 99th percentile of the error of the gaps between probes. Skipped ones leave no gap to
// judge, so only neighbours in the record count.
func spacingP99(l *record.Latency) (float64, bool) {
	if l == nil || len(l.Late) < 2 {
		return 0, false
	}
	off := make([]float64, len(l.Late)-1)
	for i := range off {
		off[i] = math.Abs(float64(l.Late[i+1] - l.Late[i]))
	}
	slices.Sort(off)
	return quantileSorted(off, .99), true
}

// Bufferbloat words the time that a load adds to the median round trip, by the thresholds that DSLReports
// set and LibreQoS kept: below 5 ms A+, 30 A, 60 B, 200 C, 400 D, else F.
func Bufferbloat(addedNs float64) string {
	for _, g := range []struct {
		ms    float64
		grade string
	}{{5, "A+"}, {30, "A"}, {60, "B"}, {200, "C"}, {400, "D"}} {
		if addedNs < g.ms*1e6 {
			return g.grade
		}
	}
	return "F"
}

func tooFewProbes(n int, q percentile) string {
	if n == 0 {
		return "no probe was answered"
	}
	return fmt.Sprintf("%d answered probes do not carry %s", n, q.name)
}

// summariseLatency makes the percentiles of a cell. Where every measurement carries a percentile by itself
// it is treated like any metric: the median of the trials with its interval. Where only all probes together
// do, it is the pooled percentile, with the range of the trials that carry it or else the order-statistic
// interval of the pool (Level is then set, and holds as far as probes are independent), and says "pooled".
func (g *group) summariseLatency(good []*judged) {
	idle := probed(good, "idle")
	if len(idle) == 0 {
		idle = probed(lastGood(g.idle), "idle")
	}
	g.addPercentiles("idle", idle, "the idle path was not measured")
	g.addPercentiles("loaded", probed(good, "loaded"), "no latency probe ran beside the load")
	if len(probed(good, "idle")) == 0 && len(idle) > 0 {
		var lost []float64
		for _, j := range idle {
			lost = append(lost, j.m.values[probeLossIdle])
		}
		g.cell.Metrics[probeLossIdle] = Summarise(lost)
	}
}

// probed are the trials in which a probe ran, whether it was answered or not.
func probed(trials []*judged, kind string) []*judged {
	var out []*judged
	for _, j := range trials {
		if _, ran := j.m.rtts[kind]; ran {
			out = append(out, j)
		}
	}
	return out
}

func (g *group) addPercentiles(kind string, ran []*judged, why string) {
	var pool []float64
	var trials []*judged
	for _, j := range ran {
		if len(j.m.rtts[kind]) > 0 {
			trials = append(trials, j)
		}
	}
	if len(ran) > 0 {
		why = tooFewProbes(0, percentiles[0])
	}
	if n := len(trials); n > 0 && n < len(ran) {
		g.cell.Caveats = append(g.cell.Caveats, record.Caveat{Kind: "partly-missing",
			Text: fmt.Sprintf("rtt_%s: known in %d of %d trials (%s)", kind, n, len(ran), why)})
	}
	for _, q := range percentiles {
		name := rtt(kind, q)
		if len(trials) == 0 {
			g.cell.Missing[name] = why
			continue
		}
		var values []float64
		for _, j := range trials {
			if v, ok := j.m.values[name]; ok {
				values = append(values, v)
			}
		}
		if len(values) == len(trials) {
			g.cell.Metrics[name] = Summarise(values)
			continue
		}
		if pool == nil {
			for _, j := range trials {
				pool = append(pool, j.m.rtts[kind]...)
			}
			slices.Sort(pool)
		}
		if !Carries(len(pool), q.level) {
			g.cell.Missing[name] = tooFewProbes(len(pool), q)
			continue
		}
		g.cell.Metrics[name] = pooled(pool, q.level, values, len(trials))
	}
}

// pooled is a percentile over all probes of n trials.
func pooled(pool []float64, level float64, each []float64, n int) Value {
	v := Value{Median: quantileSorted(pool, level), N: n, Values: each, Interval: IntervalPooled}
	if len(each) > 1 {
		v.Low, v.High = min(slices.Min(each), v.Median), max(slices.Max(each), v.Median)
		return v
	}
	low, high := quantileRanks(len(pool), level)
	v.Low, v.High, v.Level = pool[low-1], pool[high-1], Level
	if v.Values == nil {
		v.Values = []float64{}
	}
	return v
}

// quantileRanks are the ranks of the order statistics that enclose the q-quantile of n values with 95 %
// confidence, by the binomial distribution of the number of values below it.
func quantileRanks(n int, q float64) (low, high int) {
	low, high = 1, n
	sum := 0.0
	for k := 0; k < n; k++ {
		sum += math.Exp(logChoose(n, k) + float64(k)*math.Log(q) + float64(n-k)*math.Log1p(-q))
		if sum <= (1-Level)/2 {
			low = k + 1
		}
		if sum >= 1-(1-Level)/2 {
			high = k + 1
			break
		}
	}
	return min(low, n), min(max(high, low), n)
}

// addAdded computes what the load adds to the median round trip of each trial: against the idle measurement
// of its own block, else the path's.
func (g *group) addAdded() {
	blocks := g.byBlock(rtt("idle", percentiles[0]))
	var all []float64
	for _, b := range blocksOf([]map[int]float64{blocks}) {
		all = append(all, blocks[b])
	}
	for _, j := range g.good() {
		loaded, ok := j.m.values[rtt("loaded", percentiles[0])]
		if !ok {
			if why := j.m.missing[rtt("loaded", percentiles[0])]; why != "" {
				j.m.lack(why, rttAdded)
			}
			continue
		}
		idle, ok := blocks[j.t.Row.Block]
		if !ok && len(all) > 0 {
			idle, ok = Median(all), true
		}
		if !ok {
			j.m.lack("the idle path was not measured", rttAdded)
			continue
		}
		j.m.set(rttAdded, loaded-idle)
	}
}
