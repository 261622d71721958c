package analysis

import (
	"maps"
	"math"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// quantiles returns the values at QuantileLevels of sorted values, as far as their number carries them.
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

// Chart sizes: a trial's series is thinned to at most this many points.
const (
	chartPoints   = 300
	chartStep     = int64(100e6) // ns
	chartRTTBins  = 150          // each gives its smallest and its largest value
	coreSmoothing = int64(500e6) // ns: one 100 ms sample of a core is mostly tick noise
)

// chart makes what the charts of one trial need: from the begin of the load to its stop.
func chart(t *record.Trial, rtts map[string][]float64) *Series {
	from, to := t.Window.Begin, t.Window.Stop
	if from == 0 || from > t.Window.Start {
		from = t.Window.Start
	}
	to = max(to, t.Window.End)
	if to <= from || t.Traffic == nil {
		return latencyOnly(t, rtts)
	}
	step := max(chartStep, (to-from)/chartPoints)
	bins := int((to - from) / step)
	if bins == 0 {
		return latencyOnly(t, rtts)
	}
	to = from + int64(bins)*step
	s := &Series{T: make([]float64, bins)}
	for i := range s.T {
		s.T[i] = round(float64(from+int64(i+1)*step-t.Window.Start)/1e9, 4)
	}
	if curves, all := metrics.Received(t.Traffic); all {
		s.Goodput = statistics.Rates(curves, from, to, bins)
		for i, r := range s.Goodput {
			s.Goodput[i] = math.Round(math.Max(r, 0) * 8)
		}
	}
	s.Cores = coreCharts(t, from, step, bins)
	addLatency(s, t, rtts)
	return s
}

func latencyOnly(t *record.Trial, rtts map[string][]float64) *Series {
	if t.Idle == nil && t.Loaded == nil {
		return nil
	}
	s := &Series{T: []float64{}}
	addLatency(s, t, rtts)
	return s
}

func coreCharts(t *record.Trial, from, step int64, bins int) map[string][]*float64 {
	var out map[string][]*float64
	for _, node := range slices.Sorted(maps.Keys(t.Nodes)) {
		for _, c := range metrics.CoresOf(t.Nodes[node]) {
			points := make([]*float64, bins)
			for i := range points {
				b := from + int64(i+1)*step
				if busy, ok := c.Busy(b-max(step, coreSmoothing), b); ok {
					r := round(busy, 4)
					points[i] = &r
				}
			}
			if out == nil {
				out = map[string][]*float64{}
			}
			out[node+"/"+c.Name] = points
		}
	}
	return out
}

// addLatency thins the loaded probes to their envelope and adds quantiles.
func addLatency(s *Series, t *record.Trial, rtts map[string][]float64) {
	l := t.Loaded
	if l == nil {
		l = t.Idle
	}
	if l != nil && len(l.SentAt) == len(l.RTT) {
		zero := t.Window.Start
		if zero == 0 && len(l.SentAt) > 0 {
			zero = l.SentAt[0]
		}
		s.RTT = envelope(l, zero)
	}
	for _, name := range slices.Sorted(maps.Keys(rtts)) {
		if q := quantiles(rtts[name]); len(q) > 0 {
			if s.Quantile == nil {
				s.Quantile = map[string][]float64{}
			}
			s.Quantile[name] = q
		}
	}
}

// envelope keeps the smallest and the largest answer of each bin, in order.
func envelope(l *record.Latency, zero int64) []RTTPoint {
	var points []RTTPoint
	n := len(l.RTT)
	bins := min(chartRTTBins, n)
	for b := range bins {
		low, high := -1, -1
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
		for _, i := range ordered(low, high) {
			points = append(points, RTTPoint{T: round(float64(l.SentAt[i]-zero)/1e9, 4),
				NS: float64(l.RTT[i])})
		}
	}
	return points
}

func ordered(a, b int) []int {
	switch {
	case a < 0:
		return nil
	case a == b:
		return []int{a}
	}
	return []int{min(a, b), max(a, b)}
}

func round(v float64, places int) float64 {
	p := math.Pow10(places)
	return math.Round(v*p) / p
}
