package statistics

import (
	"math"
	"math/rand/v2"
	"slices"
)

// MinSegment is the minimum number of values between two change points. A single outlier is therefore not a
// change point.
const MinSegment = 3

// Parameters of the permutation test of a change point. It stops early when random permutations have reached
// the observed statistic too often.
const (
	permutations = 99
	exceedances  = 1 // maximum number that may reach the statistic: p ≤ (1+1)/(99+1) = 2 %
)

// outlying is the largest distance of a value from the median, in median absolute deviations. Values farther
// away are moved to that distance.
const outlying = 7

// ChangePoint is the start of a new level in a series. At is the index of the first value of the level. P is
// the p-value of dividing the series there.
type ChangePoint struct {
	At int
	P  float64
}

// ChangePoints returns the change points of a series in order. It uses hierarchical division as in E-divisive
// (Matteson and James, 2014): a segment is divided where the energy distance between its two parts is
// largest, if at most 2 % of the segment's random permutations reach that distance. The permutations depend
// only on the series.
func ChangePoints(values []float64) []ChangePoint {
	c, ok := Divide(values)
	if !ok {
		return nil
	}

	left := ChangePoints(values[:c.At])
	right := ChangePoints(values[c.At:])
	for i := range right {
		right[i].At += c.At
	}

	return slices.Concat(left, []ChangePoint{c}, right)
}

// Divide returns the division of a series into the two most distinct parts. ok is false if chance explains
// the difference between the parts.
func Divide(values []float64) (c ChangePoint, ok bool) {
	n := len(values)
	if n < 2*MinSegment {
		return c, false
	}

	e := newEnergy(withoutOutliers(values))
	at, observed := e.greatest()
	r := rand.New(rand.NewPCG(uint64(n), 1))
	reached := 0
	for range permutations {
		r.Shuffle(n, func(i, j int) { e.ranks[i], e.ranks[j] = e.ranks[j], e.ranks[i] })
		_, q := e.greatest()
		if q >= observed*(1-1e-9) {
			reached++
		}

		if reached > exceedances {
			return c, false
		}
	}

	return ChangePoint{At: at, P: float64(reached+1) / (permutations + 1)}, observed > 0
}

// withoutOutliers returns the values after moving outliers towards the median.
func withoutOutliers(values []float64) []float64 {
	m := Median(values)
	var away []float64
	for _, v := range values {
		away = append(away, math.Abs(v-m))
	}

	most := outlying * Median(away)
	if most == 0 {
		return values
	}

	out := slices.Clone(values)
	for i, v := range out {
		out[i] = min(max(v, m-most), m+most)
	}

	return out
}

// energy computes the energy distances of all divisions of a series. It adds the values, in the order of the
// series, to a Fenwick tree over the ranks of the values.
type energy struct {
	ranks  []int     // rank of each value, from 1; equal values have different ranks
	sorted []float64 // values by rank; index 0 is unused
	apart  []float64 // by rank: sum of the distances of the value from all values
	total  float64   // sum of the distances between all pairs of values
	tree   []added
}

// added holds the number and the sum of the values added so far in a range of ranks.
type added struct{ count, sum float64 }

func newEnergy(values []float64) *energy {
	n := len(values)
	e := &energy{
		ranks:  make([]int, n),
		sorted: append([]float64{0}, slices.Sorted(slices.Values(values))...),
		apart:  make([]float64, n+1),
		tree:   make([]added, n+1),
	}
	taken := make([]int, n)
	for i, v := range values {
		first, _ := slices.BinarySearch(e.sorted[1:], v)
		taken[first]++
		e.ranks[i] = first + taken[first]
	}

	below := 0.0
	sum := Total(values)
	for i, v := range e.sorted[1:] {
		e.apart[i+1] = v*float64(2*i-n) + sum - 2*below
		e.total += e.apart[i+1] / 2
		below += v
	}

	return e
}

// greatest returns the division with the largest statistic m·n/(m+n) × energy distance.
func (e *energy) greatest() (at int, most float64) {
	clear(e.tree)
	n := len(e.ranks)
	before, after := 0.0, e.total // sums of the distances within each of the two parts
	sum := 0.0
	for i, rank := range e.ranks[:n-MinSegment] {
		v := e.sorted[rank]
		x := e.add(rank, v)
		near := v*(2*x.count-float64(i)) + sum - 2*x.sum
		before += near
		after -= e.apart[rank] - near
		sum += v
		if i+1 < MinSegment {
			continue
		}

		a := float64(i + 1)
		b := float64(n - i - 1)
		distance := 2*(e.total-before-after)/(a*b) - 2*before/(a*(a-1)) - 2*after/(b*(b-1))
		q := a * b / (a + b) * distance
		if q > most {
			at = i + 1
			most = q
		}
	}

	return at, most
}

// add adds the value with the given rank. It returns the number and the sum of the values with lower ranks
// that were added earlier.
func (e *energy) add(rank int, v float64) (below added) {
	for i := rank; i > 0; i &= i - 1 {
		below.count += e.tree[i].count
		below.sum += e.tree[i].sum
	}

	for i := rank; i < len(e.tree); i += i & -i {
		e.tree[i].count++
		e.tree[i].sum += v
	}

	return below
}
