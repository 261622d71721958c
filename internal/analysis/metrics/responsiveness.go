package metrics

import (
	"math"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Parameters of draft-ietf-ippm-responsiveness. Its intervals last five seconds. Here they last one second,
// as in older versions of the draft, because windows are short.
const (
	rpmInterval = int64(1e9) // ID: interval in ns
	rpmAverages = 4          // MAD: intervals of a moving average, and number of averages that must agree
	RpmTrim     = .95        // TMP: share of the values, smallest first, that the trimmed mean uses
	rpmSpread   = .05        // SDT: limit of the averages' standard deviation ÷ the last average
)

// Levels of confidence in a responsiveness.
const (
	ConfidenceLow    = "low"    // fewer than four intervals
	ConfidenceMedium = "medium" // goodput or responsiveness was not stable
	ConfidenceHigh   = "high"
)

// ResponsivenessBand returns the draft's name for a range of round trips per minute. The ranges are separated
// at round-trip times of 200 ms, 60 ms and 10 ms.
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

// addResponsiveness adds the round trips per minute, if the engine measured them.
func (m *Measured) addResponsiveness(t *record.Trial) {
	r := t.Traffic.Responsiveness
	if r == nil {
		return
	}

	foreign, loaded, ok := roundTrips(r, math.MinInt64, math.MaxInt64)
	if !ok {
		m.Lack("of a kind of request none was made, or more than 5 % got no answer", Responsiveness,
			foreignRPM, loadedRPM)
		return
	}

	m.Set(foreignRPM, foreign)
	m.Set(loadedRPM, loaded)
	m.Set(Responsiveness, (foreign+loaded)/2)
	m.Confidence = RPMConfidence(t)
}

// roundTrips returns the two parts of the responsiveness, computed from the requests in a period: the round
// trips per minute on new connections and on loaded ones. An unanswered request counts as infinitely slow, so
// the trimmed mean drops such requests first. ok is false if more requests are unanswered than the mean may
// drop.
func roundTrips(r *record.Responsiveness, from, to int64) (foreign, loaded float64, ok bool) {
	connect, ok1 := statistics.TrimmedMean(between(r.ForeignAt, r.Connect, from, to), RpmTrim)
	exchange, ok2 := statistics.TrimmedMean(between(r.ForeignAt, r.Exchange, from, to), RpmTrim)
	behind, ok3 := statistics.TrimmedMean(between(r.LoadedAt, r.Loaded, from, to), RpmTrim)
	if !ok1 || !ok2 || !ok3 {
		return 0, 0, false
	}

	const minute = 60e9 // in ns
	return minute / ((connect + exchange) / 2), minute / behind, true
}

// between returns the durations of the requests that were made in an interval.
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

// RPMConfidence returns the confidence of one trial. It depends on whether goodput and responsiveness were
// stable at the window's end.
func RPMConfidence(t *record.Trial) string {
	// All requests may have been sent before the window.
	last := t.Window.Start
	for _, at := range t.Traffic.Responsiveness.LoadedAt {
		last = max(last, at)
	}

	n := int((min(last, t.Window.End) - t.Window.Start + rpmInterval/2) / rpmInterval)
	curves, all := Received(t.Traffic)
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

	if settled(statistics.Rates(curves, t.Window.Start, t.Window.Start+int64(n)*rpmInterval, n)) &&
		settled(each) {
		return ConfidenceHigh
	}

	return ConfidenceMedium
}

// settled reports whether the last four moving averages agree. The first averages cover fewer than four
// intervals.
func settled(values []float64) bool {
	if len(values) < rpmAverages {
		return false
	}

	averages := make([]float64, len(values))
	for i := range values {
		last := values[max(0, i+1-rpmAverages) : i+1]
		averages[i] = statistics.Total(last) / float64(len(last))
	}

	last := averages[len(averages)-rpmAverages:]
	mean := statistics.Total(last) / rpmAverages
	squares := 0.0
	for _, v := range last {
		squares += (v - mean) * (v - mean)
	}

	return math.Sqrt(squares/rpmAverages) < rpmSpread*last[rpmAverages-1]
}
