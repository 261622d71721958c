package analysis

import (
	"cmp"
	"math"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// quantiles returns the quantiles at QuantileLevels. It stops at the first level for which there are too few
// values.
func quantiles(sorted []float64) []float64 {
	var out []float64
	for _, q := range QuantileLevels {
		if q > .5 && !statistics.Carries(len(sorted), q) || len(sorted) == 0 {
			break
		}

		out = append(out, statistics.QuantileSorted(sorted, q))
	}
	return out
}

// Sizes of charts. The series of a trial have at most chartPoints points. If a run has more than manyTrials
// trials, its series have fewer points, so that the document of a day-long run stays small.
const (
	chartPoints   = 300
	manyTrials    = 100
	minPoints     = 60
	chartStep     = int64(100e6) // ns
	chartRTTBins  = 150          // maximum number of bins; each bin has its smallest and largest value
	coreSmoothing = int64(500e6) // ns; over 100 ms, kernel ticks would dominate the busy share of a core
)

// chart returns the data for the charts of one trial, from the start of the load to its end.
func chart(t *record.Trial, rtts map[string][]float64, points int) *Series {
	from := t.Window.Start
	if t.Window.Begin != 0 {
		from = min(from, t.Window.Begin)
	}

	length := max(t.Window.Stop, t.Window.End) - from
	step := max(chartStep, length/int64(points))
	bins := 0
	if t.Traffic != nil {
		bins = max(int(length/step), 0)
	}

	if bins == 0 && t.Idle == nil && t.Loaded == nil {
		return nil
	}

	s := &Series{T: make([]float64, bins)}
	for i := range s.T {
		s.T[i] = round(float64(from+int64(i+1)*step-t.Window.Start) / 1e9)
	}

	curves, all := metrics.Received(t.Traffic)
	if all && bins > 0 {
		s.Goodput = statistics.Rates(curves, from, from+int64(bins)*step, bins)
		for i, r := range s.Goodput {
			s.Goodput[i] = math.Round(max(r, 0) * 8)
		}
	}

	if bins > 0 {
		s.Cores = coreCharts(t, from, step, bins)
	}

	addLatency(s, t, rtts)
	return s
}

func coreCharts(t *record.Trial, from, step int64, bins int) map[string][]*float64 {
	out := map[string][]*float64{}
	for node, data := range t.Nodes {
		for _, c := range metrics.CoresOf(data) {
			points := make([]*float64, bins)
			for i := range points {
				b := from + int64(i+1)*step
				if busy, ok := c.Busy(b-max(step, coreSmoothing), b); ok {
					points[i] = new(round(busy))
				}
			}

			out[node+"/"+c.Name] = points
		}
	}
	return out
}

// addLatency adds the envelope and the quantiles of the probes' round-trip times.
func addLatency(s *Series, t *record.Trial, rtts map[string][]float64) {
	l := cmp.Or(t.Loaded, t.Idle)
	if l != nil && len(l.SentAt) == len(l.RTT) {
		zero := t.Window.Start
		if zero == 0 && len(l.SentAt) > 0 {
			zero = l.SentAt[0]
		}

		s.RTT = envelope(l, zero)
	}

	s.Quantile = map[string][]float64{}
	for name, sorted := range rtts {
		q := quantiles(sorted)
		if len(q) > 0 {
			s.Quantile[name] = q
		}
	}
}

// envelope returns the smallest and the largest round-trip time of each bin, in order of time.
func envelope(l *record.Latency, zero int64) []RTTPoint {
	var points []RTTPoint
	n := len(l.RTT)
	bins := min(chartRTTBins, n)
	for b := range bins {
		low := -1
		high := -1
		for i := n * b / bins; i < n*(b+1)/bins; i++ {
			if l.RTT[i] < 0 {
				continue
			}

			if low < 0 || l.RTT[i] < l.RTT[low] {
				low = i
			}

			if high < 0 || l.RTT[i] > l.RTT[high] {
				high = i
			}
		}

		ends := []int{min(low, high), max(low, high)}
		if low < 0 {
			ends = nil
		}

		for _, i := range slices.Compact(ends) {
			points = append(points, RTTPoint{
				T:  round(float64(l.SentAt[i]-zero) / 1e9),
				NS: float64(l.RTT[i]),
			})
		}
	}

	return points
}

// round rounds to four places.
func round(v float64) float64 { return math.Round(v*1e4) / 1e4 }
