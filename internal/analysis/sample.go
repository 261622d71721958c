package analysis

import (
	"math"
	"slices"
)

// Level is the confidence aimed at by every interval; the achieved level of an order-statistic interval is
// at least this.
const Level = 0.95

// MinInterval is the smallest number of values for which a two-sided 95 % order-statistic interval of the
// median exists: 2·0.5⁶ = 3.1 % ≤ 5 %.
const MinInterval = 6

// Median is the middle value, or the mean of the two middle ones; NaN of none.
func Median(values []float64) float64 {
	s := slices.Clone(values)
	slices.Sort(s)
	return medianSorted(s)
}

func medianSorted(s []float64) float64 {
	n := len(s)
	switch {
	case n == 0:
		return math.NaN()
	case n%2 == 1:
		return s[n/2]
	}
	return s[n/2-1]/2 + s[n/2]/2
}

// quantileSorted is the q-quantile of sorted values: the smallest value with at least the share q of all
// values at or below it (type 1 of Hyndman and Fan, 1996): always a value that was seen.
func quantileSorted(s []float64, q float64) float64 {
	if len(s) == 0 {
		return math.NaN()
	}
	i := int(math.Ceil(q*float64(len(s))-1e-9)) - 1
	return s[min(max(i, 0), len(s)-1)]
}

// Carries says whether n independent values carry their q-quantile: whether a two-sided 95 %
// order-statistic interval of it exists at all, which needs qⁿ ≤ 2.5 % (and the same of 1-q). It is 6
// values for the median, 36 for p90, 368 for p99, 3688 for p99.9 and 36,888 for p99.99.
func Carries(n int, q float64) bool {
	if q <= 0 || q >= 1 {
		return n > 0
	}
	return math.Pow(max(q, 1-q), float64(n)) <= (1-Level)/2
}

// MedianInterval returns the ranks (from 1) of the order statistics that enclose the median of n values
// with at least 95 % confidence, whatever the distribution, and the exact level; ok is false below six
// values. Reference: David and Nagaraja, Order Statistics, 3rd ed., §7.1.
func MedianInterval(n int) (low, high int, level float64, ok bool) {
	tail := 0.0 // P(Bin(n, ½) < low)
	for k := 1; k <= (n+1)/2; k++ {
		next := tail + binomialHalf(n, k-1)
		if 2*next > 1-Level {
			break
		}
		tail, low = next, k
	}
	if low == 0 {
		return 0, 0, 0, false
	}
	return low, n + 1 - low, 1 - 2*tail, true
}

// binomialHalf is the probability of k heads in n fair throws.
func binomialHalf(n, k int) float64 {
	return math.Exp(logChoose(n, k) - float64(n)*math.Ln2)
}

func logChoose(n, k int) float64 {
	a, _ := math.Lgamma(float64(n + 1))
	b, _ := math.Lgamma(float64(k + 1))
	c, _ := math.Lgamma(float64(n - k + 1))
	return a - b - c
}

// Summarise makes a Value of one number per trial: the median with its order-statistic interval for six or
// more, with the range below. It must not be called without values.
func Summarise(values []float64) Value {
	s := slices.Clone(values)
	slices.Sort(s)
	n := len(s)
	v := Value{Median: medianSorted(s), Low: s[0], High: s[n-1], N: n, Values: slices.Clone(values)}
	if n == 1 {
		v.Interval = IntervalSingle
		return v
	}
	v.Interval = IntervalRange
	if low, high, level, ok := MedianInterval(n); ok {
		v.Low, v.High, v.Level, v.Interval = s[low-1], s[high-1], level, IntervalOrder
	}
	return v
}

// Narrow is the rule of adaptive stopping: at least min values (never fewer than six) and an interval of
// the median whose full width is at most width times the median. Stopping on width, unlike stopping on a
// p-value, leaves the coverage nearly as it was; the tests hold it to that.
func Narrow(values []float64, width float64, min int) bool {
	if len(values) < max(min, MinInterval) {
		return false
	}
	v := Summarise(values)
	return v.Median > 0 && v.High-v.Low <= width*v.Median
}
