package analysis

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Aligned is how a machine's clock relates to the controller's: Offset is the former minus the latter,
// within ±Bound, and Match the correlation of the machine's traffic with the run's, at most 1.
type Aligned struct {
	Offset, Bound int64
	Match         float64
}

// Limits of an alignment.
const (
	leastMatch  = 0.5  // below, the traffic of the two has nothing in common
	rivalMatch  = 0.05 // another offset that matches so nearly as well is as likely
	coarseMost  = 2000 // intervals of the run in the first pass
	finestSteps = 50   // of an interval
	// wallWithin is how wrong a machine's wall clock may be to tell offsets apart that match alike.
	wallWithin = int64(10e9)
)

// AlignByTraffic finds the offset of a machine's clock at which the bytes that its network devices received
// (netdev, by that clock) agree best with those that the trials' flows carried. wall is the offset that the
// wall clocks tell, 0 if they do not.
func AlignByTraffic(trials []record.Trial, netdev *record.Table, wall int64) (Aligned, error) {
	carried := carriedBy(trials)
	if len(carried.t) == 0 {
		return Aligned{}, errors.New("the run has no trial with a series of its traffic")
	}
	seen := receivedOf(netdev)
	if len(seen.t) < 3 {
		return Aligned{}, errors.New("there are fewer than three samples of netdev")
	}
	return align(carried, seen, wall)
}

// align finds the offset of a counter's clock at which it agrees best with another one: their rates over each
// interval of the former's samples are correlated (Pearson). wall is the offset that the wall clocks tell, 0 if
// they do not: it only decides between offsets that match alike, since a router's clock may be set to anything.
func align(carried, seen curve, wall int64) (Aligned, error) {
	interval := medianGap(seen.t)
	long := carried.t[len(carried.t)-1] - carried.t[0]
	width := max(interval, long/coarseMost, 1)
	roughly, rough := newIntervals(thinned(seen, width)), thinned(carried, width/4)
	var all []Aligned
	first, last := seen.t[0]-carried.t[len(carried.t)-1], seen.t[len(seen.t)-1]-carried.t[0]
	for d := first; d <= last; d += max(width/2, 1) {
		all = append(all, Aligned{Offset: d, Match: roughly.agree(rough, d)})
	}
	tops := peaks(all)
	closely := newIntervals(seen)
	for i := range tops {
		for _, step := range []int64{width / 10, max(interval/finestSteps, 1)} {
			around := tops[i].Offset
			tops[i].Match = -1
			for d := around - 10*step; d <= around+10*step; d += max(step, 1) {
				if m := closely.agree(carried, d); m > tops[i].Match {
					tops[i] = Aligned{Offset: d, Match: m, Bound: interval / 2}
				}
			}
		}
	}
	return choose(tops, wall)
}

// choose takes the best of some offsets, if it is the only good one.
func choose(tops []Aligned, wall int64) (Aligned, error) {
	sort.SliceStable(tops, func(a, b int) bool { return tops[a].Match > tops[b].Match })
	if len(tops) == 0 || !(tops[0].Match >= leastMatch) {
		return Aligned{}, &NoMatchError{}
	}
	best := tops[0]
	if len(tops) < 2 || tops[1].Match < best.Match-rivalMatch {
		return best, nil
	}
	var near []Aligned // by how far they are from what the wall clocks tell
	for _, a := range tops {
		if a.Match >= best.Match-rivalMatch {
			near = append(near, a)
		}
	}
	far := func(a Aligned) int64 { return max(a.Offset-wall, wall-a.Offset) }
	sort.Slice(near, func(a, b int) bool { return far(near[a]) < far(near[b]) })
	if wall == 0 || far(near[0]) > wallWithin || far(near[0]) > far(near[1])/2 {
		return Aligned{}, &NoMatchError{Many: true}
	}
	return near[0], nil
}

// NoMatchError says that the traffic of a machine tells not when it was.
type NoMatchError struct {
	Many bool // it fits at several times
}

func (e *NoMatchError) Error() string {
	if e.Many {
		return "relate its clock to the run's: its traffic fits the run's at several times alike, and its " +
			"wall clock does not tell which"
	}
	return "relate its clock to the run's: the traffic that its devices received is not the run's"
}

// Hint says what makes the difference.
func (e *NoMatchError) Hint() string {
	if e.Many {
		return "start the probe before the run and stop it after: the whole of it fits once only"
	}
	return "the probe must watch netdev on a machine that the run's traffic crossed, while the run went on"
}

// peaks are the highest match and those nearly as high, each parted from the next by a dip.
func peaks(all []Aligned) []Aligned {
	best := 0
	for i, a := range all {
		if a.Match > all[best].Match {
			best = i
		}
	}
	tops := []Aligned{all[best]}
	for _, step := range []int{-1, 1} {
		lowest, highest := all[best].Match, -1 // since the last peak; of a peak that is being climbed
		for i := best + step; i >= 0 && i < len(all); i += step {
			m := all[i].Match
			switch {
			case highest >= 0 && m > all[highest].Match:
				highest = i
			case highest >= 0 && m < all[highest].Match-rivalMatch:
				tops, lowest, highest = append(tops, all[highest]), m, -1
			case highest < 0 && m > lowest+rivalMatch && m > all[best].Match-2*rivalMatch:
				highest = i
			}
			lowest = min(lowest, m)
		}
		if highest >= 0 {
			tops = append(tops, all[highest])
		}
	}
	return tops
}

// intervals are a counter's rates over the intervals of its samples.
type intervals struct {
	curve
	sum, squares float64
	n            float64
}

func newIntervals(c curve) intervals {
	r := intervals{curve: c}
	for i := 1; i < len(c.t); i++ {
		x := r.of(i)
		r.n, r.sum, r.squares = r.n+1, r.sum+x, r.squares+x*x
	}
	return r
}

// of is the rate of the interval that ends with a sample.
func (r intervals) of(i int) float64 {
	return (r.v[i] - r.v[i-1]) / float64(max(r.t[i]-r.t[i-1], 1))
}

// agree is the correlation with the rates of another counter, whose clock is d behind. Where that one has
// no points it stands still.
func (r intervals) agree(other curve, d int64) float64 {
	from, to := other.t[0]+d, other.t[len(other.t)-1]+d
	i := max(sort.Search(len(r.t), func(i int) bool { return r.t[i] > from }), 1)
	k := 0
	at := func(t int64) float64 { // as curve.at, of times that only grow
		for k < len(other.t) && other.t[k] < t {
			k++
		}
		switch {
		case k == 0:
			return other.v[0]
		case k == len(other.t):
			return other.v[k-1]
		}
		share := float64(t-other.t[k-1]) / float64(other.t[k]-other.t[k-1])
		return other.v[k-1] + share*(other.v[k]-other.v[k-1])
	}
	var sum, squares, products float64
	before := at(r.t[i-1] - d)
	for ; i < len(r.t) && r.t[i-1] < to; i++ {
		after := at(r.t[i] - d)
		y := (after - before) / float64(max(r.t[i]-r.t[i-1], 1))
		before = after
		sum, squares, products = sum+y, squares+y*y, products+r.of(i)*y
	}
	x, y := r.squares-r.sum*r.sum/r.n, squares-sum*sum/r.n
	if !(x > 0 && y > 0) {
		return 0
	}
	return (products - r.sum*sum/r.n) / math.Sqrt(x*y)
}

// carriedBy adds up what all flows of all trials carried, as one counter by the controller's clock.
func carriedBy(trials []record.Trial) curve {
	trials = slices.Clone(trials)
	slices.SortStableFunc(trials, func(a, b record.Trial) int { return cmp.Compare(a.Origin, b.Origin) })
	var out curve
	total := 0.0
	for i := range trials {
		if trials[i].Traffic == nil {
			continue
		}
		var flows []curve
		var times []int64
		for _, f := range trials[i].Traffic.Flows {
			table := f.Received
			if table == nil {
				table = f.Sent
			}
			if v := table.Column("bytes"); len(v) > 1 {
				flows = append(flows, newCurve(table.T, v))
				times = append(times, table.T...)
			}
		}
		sort.Slice(times, func(a, b int) bool { return times[a] < times[b] })
		for k, at := range times {
			if k > 0 && at == times[k-1] || len(out.t) > 0 && at <= out.t[len(out.t)-1] {
				continue
			}
			sum := total
			for _, c := range flows {
				sum += c.at(at) - c.v[0]
			}
			out.t, out.v = append(out.t, at), append(out.v, sum)
		}
		if n := len(out.v); n > 0 {
			total = out.v[n-1]
		}
	}
	return out
}

// receivedOf adds up what all devices but loopback received. A counter that goes back or that comes later
// adds nothing then.
func receivedOf(netdev *record.Table) curve {
	if netdev == nil {
		return curve{}
	}
	out := curve{t: netdev.T, v: make([]float64, len(netdev.T))}
	for i, name := range netdev.Names {
		device, counter, _ := strings.Cut(name, "/")
		if counter != "rx_bytes" || device == "lo" {
			continue
		}
		sum := 0.0
		for j := range out.v {
			if j > 0 {
				if d := netdev.V[i][j] - netdev.V[i][j-1]; d > 0 { // not NaN
					sum += d
				}
			}
			out.v[j] += sum
		}
	}
	return out
}

// thinned keeps points that are at least a time apart.
func thinned(c curve, apart int64) curve {
	var out curve
	for i, t := range c.t {
		if n := len(out.t); n == 0 || t-out.t[n-1] >= apart {
			out.t, out.v = append(out.t, t), append(out.v, c.v[i])
		}
	}
	return out
}

func medianGap(t []int64) int64 {
	gaps := make([]float64, 0, len(t))
	for i := 1; i < len(t); i++ {
		gaps = append(gaps, float64(t[i]-t[i-1]))
	}
	if len(gaps) == 0 {
		return 0
	}
	return int64(Median(gaps))
}

// Text says how well two clocks are related.
func (a Aligned) Text() string {
	return fmt.Sprintf("within ±%d ms, by the traffic itself (correlation %.2f)", (a.Bound+999_999)/1e6,
		a.Match)
}
