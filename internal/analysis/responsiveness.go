package analysis

import (
	"math"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Parameters of draft-ietf-ippm-responsiveness. Its intervals are five seconds long; ours are one, as in
// its older versions, because windows are short.
const (
	rpmInterval = int64(1e9) // ID
	rpmAverages = 4          // MAD: intervals of a moving average, and averages that must agree
	rpmTrim     = .95        // TMP: the share that the trimmed mean keeps, of the smallest
	rpmSpread   = .05        // SDT: of the averages' standard deviation ÷ the last one
)

// Confidence in a responsiveness.
const (
	ConfidenceLow    = "low"    // fewer than four intervals
	ConfidenceMedium = "medium" // goodput or responsiveness had not settled
	ConfidenceHigh   = "high"
)

// ResponsivenessBand words round trips per minute, by the draft's bands: they stand for 200 ms, 60 ms and
// 10 ms.
func ResponsivenessBand(rpm float64) string {
	switch {
	case rpm < 300:
		return "poor"
	case rpm < 1000:
		return "fair"
	case rpm < 6000:
		return "good"
	}
	return "excellent"
}

// addResponsiveness computes round trips per minute, where the engine asked for them.
func (m *measured) addResponsiveness(t *record.Trial) {
	r := t.Traffic.Responsiveness
	if r == nil {
		return
	}
	foreign, loaded, ok := roundTrips(r, math.MinInt64, math.MaxInt64)
	if !ok {
		m.lack("of a kind of request none was made, or more than 5 % got no answer", responsiveness,
			foreignRPM, loadedRPM)
		return
	}
	m.set(foreignRPM, foreign)
	m.set(loadedRPM, loaded)
	m.set(responsiveness, (foreign+loaded)/2)
}

// roundTrips are the two halves of the responsiveness, from the requests that were made from one time up to
// another. Requests without an answer count as infinitely slow: they are the first that the trimmed mean
// leaves out, and where they are more than it may, there is no figure.
func roundTrips(r *record.Responsiveness, from, to int64) (foreign, loaded float64, ok bool) {
	connect, ok1 := trimmedMean(between(r.ForeignAt, r.Connect, from, to), rpmTrim)
	exchange, ok2 := trimmedMean(between(r.ForeignAt, r.Exchange, from, to), rpmTrim)
	behind, ok3 := trimmedMean(between(r.LoadedAt, r.Loaded, from, to), rpmTrim)
	if !ok1 || !ok2 || !ok3 {
		return 0, 0, false
	}
	const minute = 60e9 // ns
	return minute / ((connect + exchange) / 2), minute / behind, true
}

// between are the values of the requests that were made in a stretch.
func between(at, ns []int64, from, to int64) []float64 {
	var out []float64
	for i := range min(len(at), len(ns)) {
		switch {
		case at[i] < from || at[i] >= to:
		case ns[i] < 0:
			out = append(out, math.Inf(1))
		default:
			out = append(out, math.Max(float64(ns[i]), 1))
		}
	}
	return out
}

// trimmedMean is the mean of the smallest share, of at least one value; false if there is none or one of
// them is infinite.
func trimmedMean(values []float64, share float64) (float64, bool) {
	if len(values) == 0 {
		return 0, false
	}
	slices.Sort(values)
	keep := values[:max(int(share*float64(len(values))), 1)]
	mean := total(keep) / float64(len(keep))
	return mean, !math.IsInf(mean, 1)
}

// rpmConfidence judges one trial: whether goodput and responsiveness had settled at the window's end.
func rpmConfidence(t *record.Trial) string {
	// Requests end before the window does.
	last := t.Window.Start
	for _, at := range t.Traffic.Responsiveness.LoadedAt {
		last = max(last, at)
	}
	n := int((min(last, t.Window.End) - t.Window.Start + rpmInterval/2) / rpmInterval)
	curves, all := received(t.Traffic)
	if n < rpmAverages || !all {
		return ConfidenceLow
	}
	each := make([]float64, n)
	for i := range each {
		from := t.Window.Start + int64(i)*rpmInterval
		foreign, loaded, ok := roundTrips(t.Traffic.Responsiveness, from, from+rpmInterval)
		if !ok {
			return ConfidenceMedium
		}
		each[i] = (foreign + loaded) / 2
	}
	if settled(rates(curves, t.Window.Start, t.Window.Start+int64(n)*rpmInterval, n)) && settled(each) {
		return ConfidenceHigh
	}
	return ConfidenceMedium
}

// settled says whether the last four moving averages agree. The average of an early interval is over as
// many as there are.
func settled(values []float64) bool {
	if len(values) < rpmAverages {
		return false
	}
	averages := make([]float64, len(values))
	for i := range values {
		last := values[max(0, i+1-rpmAverages) : i+1]
		averages[i] = total(last) / float64(len(last))
	}
	last := averages[len(averages)-rpmAverages:]
	mean := total(last) / rpmAverages
	squares := 0.0
	for _, v := range last {
		squares += (v - mean) * (v - mean)
	}
	return math.Sqrt(squares/rpmAverages) < rpmSpread*last[rpmAverages-1]
}

// underLoad sorts the TCP cells by path, and grades each direction and the mean of up and down.
func underLoad(cells []*group) []UnderLoad {
	var out []UnderLoad
	index := map[string]int{}
	varying := varyingFactors(cells)
	delete(varying, "direction")
	for _, g := range cells {
		way, ok := g.loadedPath()
		if !ok {
			continue
		}
		f := g.factors.Clone()
		delete(f, "direction")
		i, known := index[f.Key()]
		if !known {
			i = len(out)
			index[f.Key()] = i
			out = append(out, UnderLoad{Factors: f, Label: labelOf(f, varying),
				Ways: map[string]LoadedPath{}})
		}
		out[i].Ways[g.factors["direction"]] = way
	}
	for i := range out {
		up, down := out[i].Ways[record.Up].AddedNs, out[i].Ways[record.Down].AddedNs
		if up != nil && down != nil {
			out[i].AddedNs = (*up + *down) / 2
			out[i].Grade = Bufferbloat(out[i].AddedNs)
		}
	}
	return out
}

// loadedPath is a cell's line; false for a cell that says nothing about a path full of TCP.
func (g *group) loadedPath() (LoadedPath, bool) {
	way := LoadedPath{Cell: g.factors}
	switch {
	case g.factors["protocol"] == "udp", g.factors["engine"] == "flows", g.factors["engine"] == "requests":
		return way, false
	}
	if v, ok := g.cell.Metrics[rttAdded]; ok {
		way.AddedNs, way.Grade = &v.Median, Bufferbloat(v.Median)
	}
	v, ok := g.cell.Metrics[responsiveness]
	if !ok {
		way.Why = g.cell.Missing[responsiveness]
		return way, way.AddedNs != nil || way.Why != ""
	}
	way.RPM, way.Band = &v.Median, ResponsivenessBand(v.Median)
	way.Confidence = ConfidenceHigh
	order := []string{ConfidenceLow, ConfidenceMedium, ConfidenceHigh}
	for _, j := range g.good() {
		if j.t.Traffic == nil || j.t.Traffic.Responsiveness == nil {
			continue
		}
		if c := rpmConfidence(j.t); slices.Index(order, c) < slices.Index(order, way.Confidence) {
			way.Confidence = c // that of the least certain trial
		}
	}
	return way, true
}
