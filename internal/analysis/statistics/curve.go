package statistics

import (
	"math"
	"slices"
)

// Curve is one counter or gauge over time.
type Curve struct {
	T []int64
	V []float64
}

// NewCurve returns a curve of the points whose value is not NaN.
func NewCurve(t []int64, v []float64) Curve {
	if !slices.ContainsFunc(v, math.IsNaN) {
		return Curve{t, v}
	}

	var c Curve
	for i, x := range v {
		if !math.IsNaN(x) {
			c.T = append(c.T, t[i])
			c.V = append(c.V, x)
		}
	}

	return c
}

// At returns the linearly interpolated value at t. Outside of the points, it returns the nearest value.
func (c Curve) At(t int64) float64 {
	n := len(c.T)
	if n == 0 {
		return math.NaN()
	}

	i, _ := slices.BinarySearch(c.T, t)
	switch {
	case i == 0:
		return c.V[0]
	case i == n:
		return c.V[n-1]
	}

	share := float64(t-c.T[i-1]) / float64(c.T[i]-c.T[i-1])
	return c.V[i-1] + share*(c.V[i]-c.V[i-1])
}

// Covers reports whether the points extend from a to b. slack is the tolerance at both ends.
func (c Curve) Covers(a, b, slack int64) bool {
	n := len(c.T)
	return n >= 2 && c.T[0] <= a+slack && c.T[n-1] >= b-slack
}

// Moved returns the growth of a counter from a to b. It returns false if the samples do not cover the
// interval, or if the counter decreased.
func (c Curve) Moved(a, b int64) (float64, bool) {
	if b <= a || !c.Covers(a, b, (b-a)/5) {
		return 0, false
	}

	// If samples are missing at an end of the interval, extrapolate from the covered part.
	first := max(a, c.T[0])
	last := min(b, c.T[len(c.T)-1])
	d := c.At(last) - c.At(first)
	if d < 0 || last <= first {
		return 0, false
	}

	return d * float64(b-a) / float64(last-first), true
}

// Rates returns the sum of the curves' rates per second, in equal bins of an interval.
func Rates(curves []Curve, from, to int64, bins int) []float64 {
	out := make([]float64, bins)
	for _, c := range curves {
		last := c.At(from)
		for i := range out {
			edge := from + int64(float64(to-from)*float64(i+1)/float64(bins))
			v := c.At(edge)
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

// Mean returns the mean of the values in an interval. If all values are equal, the mean is exactly that
// value.
func (c Curve) Mean(from, to int64) (float64, bool) {
	first := 0.0
	sum := 0.0
	n := 0
	for i, t := range c.T {
		if t < from || t > to {
			continue
		}

		if n == 0 {
			first = c.V[i]
		}

		sum += c.V[i] - first
		n++
	}

	return first + sum/float64(max(n, 1)), n > 0
}

// Largest returns the largest value in an interval.
func (c Curve) Largest(from, to int64) (float64, bool) {
	most := 0.0
	found := false
	for i, t := range c.T {
		if t >= from && t <= to && (!found || c.V[i] > most) {
			most = c.V[i]
			found = true
		}
	}
	return most, found
}
