package statistics

import (
	"fmt"
	"math"
	"slices"
	"sort"
)

// Aligned describes the relation of a machine's clock to the controller's clock. Offset is the machine's
// clock minus the controller's clock in ns, with the error ±Bound. Match is the correlation between the
// traffic of the machine and the traffic of the run, at most 1.
type Aligned struct {
	Offset, Bound int64
	Match         float64
}

// Limits of an alignment.
const (
	minMatch    = 0.8  // minimum match; the traffic of another run may match by up to 0.76
	rivalMatch  = 0.05 // offsets are equally likely if their matches differ by at most this
	coarseMost  = 2000 // maximum number of intervals in the first pass
	coarseSteps = 4e6  // intervals × offsets in the first pass are at most four times this
	finestSteps = 50   // steps per interval in the last pass
	// wallWithin is the largest error of a wall clock, in ns, with which it can still decide between offsets
	// with similar matches.
	wallWithin = int64(10e9)
)

// Align returns the offset of the clock of one counter, seen, from the clock of another counter, carried. It
// is the offset at which the rates of the two counters correlate best (Pearson). Rates are taken between the
// samples of seen.
//
// wall is the offset according to the wall clocks, or 0 if it is unknown. It decides between offsets with
// similar matches. The result differs from wall by at most the parameter within. If within is 0, the wall
// clock is unreliable, and all offsets are considered.
func Align(carried, seen Curve, wall, within int64) (Aligned, error) {
	var gaps []float64
	for i := 1; i < len(seen.T); i++ {
		gaps = append(gaps, float64(seen.T[i]-seen.T[i-1]))
	}

	interval := int64(0)
	if len(gaps) > 0 {
		interval = int64(Median(gaps))
	}

	long := carried.T[len(carried.T)-1] - carried.T[0]
	width := long / coarseMost
	if within > 0 { // a finer first pass is possible, because there are fewer offsets
		width = min(width, int64(math.Sqrt(float64(within)*float64(long)/coarseSteps)))
	}

	width = max(width, interval, 1)
	roughly := newIntervals(thinned(seen, width))
	rough := thinned(carried, width/4)
	var all []Aligned
	first := seen.T[0] - carried.T[len(carried.T)-1]
	last := seen.T[len(seen.T)-1] - carried.T[0]
	if within > 0 {
		first = max(first, wall-within)
		last = min(last, wall+within)
	}

	for d := first; d <= last; d += max(width/2, 1) {
		all = append(all, Aligned{Offset: d, Match: roughly.agree(rough, d)})
	}

	if len(all) == 0 {
		return Aligned{}, &NoMatchError{}
	}

	tops := peaks(all)
	closely := newIntervals(seen)
	for i := range tops {
		for _, step := range []int64{width / 10, max(interval/finestSteps, 1)} {
			around := tops[i].Offset
			tops[i].Match = -1
			for d := around - 10*step; d <= around+10*step; d += max(step, 1) {
				m := closely.agree(carried, d)
				if m > tops[i].Match {
					tops[i] = Aligned{Offset: d, Match: m, Bound: interval / 2}
				}
			}
		}
	}

	return choose(tops, wall)
}

// choose returns the best offset. It returns a NoMatchError if no match is good enough, or if several matches
// are similarly good and the wall clock does not decide between them.
func choose(tops []Aligned, wall int64) (Aligned, error) {
	sort.SliceStable(tops, func(a, b int) bool { return tops[a].Match > tops[b].Match })
	if len(tops) == 0 || !(tops[0].Match >= minMatch) {
		return Aligned{}, &NoMatchError{}
	}

	best := tops[0]
	if len(tops) < 2 || tops[1].Match < best.Match-rivalMatch {
		return best, nil
	}

	near := slices.DeleteFunc(slices.Clone(tops), func(a Aligned) bool {
		return !(a.Match >= best.Match-rivalMatch)
	})
	// far returns the distance of an offset from the offset according to the wall clocks.
	far := func(a Aligned) int64 { return max(a.Offset-wall, wall-a.Offset) }
	sort.Slice(near, func(a, b int) bool { return far(near[a]) < far(near[b]) })
	if wall == 0 || far(near[0]) > wallWithin || far(near[0]) > far(near[1])/2 {
		return Aligned{}, &NoMatchError{Many: true}
	}

	return near[0], nil
}

// NoMatchError means that the time of a recording cannot be determined from its traffic.
type NoMatchError struct {
	Many bool // the traffic matches at several times
}

func (e *NoMatchError) Error() string {
	if e.Many {
		return "relate its clock to the run's: its traffic fits the run's at several times alike, and its " +
			"wall clock does not tell which"
	}
	return "relate its clock to the run's: the traffic that its devices received is not the run's"
}

// Hint returns advice for making a recording that can be matched.
func (e *NoMatchError) Hint() string {
	if e.Many {
		return "start the probe before the run and stop it after: the whole of it fits once only"
	}
	return "the probe must watch netdev on a machine that the run's traffic crossed, while the run went on"
}

// peaks returns the highest match and other peaks that are separated from it by dips.
func peaks(all []Aligned) []Aligned {
	best := 0
	for i, a := range all {
		if a.Match > all[best].Match {
			best = i
		}
	}

	tops := []Aligned{all[best]}
	for _, step := range []int{-1, 1} {
		lowest := all[best].Match
		highest := -1 // index of the highest match since the last peak; -1 while matches fall
		for i := best + step; i >= 0 && i < len(all); i += step {
			m := all[i].Match
			switch {
			case highest >= 0 && m > all[highest].Match:
				highest = i
			case highest >= 0 && m < all[highest].Match-rivalMatch:
				tops = append(tops, all[highest])
				lowest = m
				highest = -1
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

// intervals is a counter with sums over its rates between consecutive samples.
type intervals struct {
	Curve
	sum, squares, n float64
}

func newIntervals(c Curve) intervals {
	r := intervals{Curve: c}
	for i := 1; i < len(c.T); i++ {
		x := r.of(i)
		r.n = r.n + 1
		r.sum = r.sum + x
		r.squares = r.squares + x*x
	}
	return r
}

// of returns the rate of the interval that ends with sample i.
func (r intervals) of(i int) float64 { return (r.V[i] - r.V[i-1]) / float64(max(r.T[i]-r.T[i-1], 1)) }

// agree returns the correlation of the rates with the rates of another counter, whose clock is behind by d.
// The rate of the other counter counts as zero before its first and after its last sample.
func (r intervals) agree(other Curve, d int64) float64 {
	from := other.T[0] + d
	to := other.T[len(other.T)-1] + d
	i, _ := slices.BinarySearch(r.T, from+1)
	i = max(i, 1)
	k := 0
	at := func(t int64) float64 { // like Curve.At, but only for ascending times
		for k < len(other.T) && other.T[k] < t {
			k++
		}

		switch {
		case k == 0:
			return other.V[0]
		case k == len(other.T):
			return other.V[k-1]
		}

		share := float64(t-other.T[k-1]) / float64(other.T[k]-other.T[k-1])
		return other.V[k-1] + share*(other.V[k]-other.V[k-1])
	}
	var sum, squares, products float64
	before := at(r.T[i-1] - d)
	for ; i < len(r.T) && r.T[i-1] < to; i++ {
		after := at(r.T[i] - d)
		y := (after - before) / float64(max(r.T[i]-r.T[i-1], 1))
		before = after
		sum = sum + y
		squares = squares + y*y
		products = products + r.of(i)*y
	}

	x := r.squares - r.sum*r.sum/r.n
	y := squares - sum*sum/r.n
	if !(x > 0 && y > 0) {
		return 0
	}

	return (products - r.sum*sum/r.n) / math.Sqrt(x*y)
}

// thinned returns a curve with fewer points. The parameter apart is the minimum time between two points, in
// ns.
func thinned(c Curve, apart int64) Curve {
	var out Curve
	for i, t := range c.T {
		n := len(out.T)
		if n == 0 || t-out.T[n-1] >= apart {
			out.T = append(out.T, t)
			out.V = append(out.V, c.V[i])
		}
	}
	return out
}

// Text describes the accuracy of the alignment.
func (a Aligned) Text() string {
	return fmt.Sprintf("within ±%d ms, by the traffic itself (correlation %.2f)", (a.Bound+999_999)/1e6,
		a.Match)
}
