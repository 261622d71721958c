package analysis

import (
	"maps"
	"math"
	"slices"
	"sort"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// curve is one growing counter over time.
type curve struct {
	t []int64
	v []float64
}

// newCurve drops the points without a value.
func newCurve(t []int64, v []float64) curve {
	clean := true
	for _, x := range v {
		if math.IsNaN(x) {
			clean = false
			break
		}
	}
	if clean {
		return curve{t, v}
	}
	var c curve
	for i, x := range v {
		if !math.IsNaN(x) {
			c.t, c.v = append(c.t, t[i]), append(c.v, x)
		}
	}
	return c
}

// at interpolates linearly; outside the points it holds the nearest value.
func (c curve) at(t int64) float64 {
	n := len(c.t)
	if n == 0 {
		return math.NaN()
	}
	i := sort.Search(n, func(i int) bool { return c.t[i] >= t })
	switch {
	case i == 0:
		return c.v[0]
	case i == n:
		return c.v[n-1]
	}
	share := float64(t-c.t[i-1]) / float64(c.t[i]-c.t[i-1])
	return c.v[i-1] + share*(c.v[i]-c.v[i-1])
}

// covers says whether points reach from a to b, give or take slack.
func (c curve) covers(a, b, slack int64) bool {
	n := len(c.t)
	return n >= 2 && c.t[0] <= a+slack && c.t[n-1] >= b-slack
}

// moved is how far a counter grew from a to b; ok is false if the samples do not reach over the stretch or
// the counter went backwards.
func (c curve) moved(a, b int64) (float64, bool) {
	if b <= a || !c.covers(a, b, (b-a)/5) {
		return 0, false
	}
	// Where the samples end inside the stretch, the rate is that of the part they cover.
	first, last := max(a, c.t[0]), min(b, c.t[len(c.t)-1])
	d := c.at(last) - c.at(first)
	if d < 0 || last <= first {
		return 0, false
	}
	return d * float64(b-a) / float64(last-first), true
}

// received returns one curve of bytes per flow that has a series at its receiver, and whether all flows
// have one.
func received(tr *record.Traffic) (curves []curve, all bool) {
	if tr == nil {
		return nil, false
	}
	all = len(tr.Flows) > 0
	for i := range tr.Flows {
		table := tr.Flows[i].Received
		var c curve
		if v := table.Column("bytes"); v != nil {
			c = newCurve(table.T, v)
		}
		if len(c.t) < 2 {
			all = false
			continue
		}
		curves = append(curves, c)
	}
	return curves, all
}

// rates returns the summed rate of the curves, per second, in equal bins of a stretch. It walks each curve
// once.
func rates(curves []curve, from, to int64, bins int) []float64 {
	out := make([]float64, bins)
	for _, c := range curves {
		last := c.at(from)
		for i := range out {
			edge := from + int64(float64(to-from)*float64(i+1)/float64(bins))
			v := c.at(edge)
			out[i] += v - last
			last = v
		}
	}
	seconds := float64(to-from) / 1e9 / float64(bins)
	for i := range out {
		out[i] /= seconds
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
	if curves, all := received(t.Traffic); all {
		s.Goodput = rates(curves, from, to, bins)
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
		for _, c := range coresOf(t.Nodes[node]) {
			points := make([]*float64, bins)
			for i := range points {
				b := from + int64(i+1)*step
				if busy, ok := c.busy(b-max(step, coreSmoothing), b); ok {
					r := round(busy, 4)
					points[i] = &r
				}
			}
			if out == nil {
				out = map[string][]*float64{}
			}
			out[node+"/"+c.name] = points
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
