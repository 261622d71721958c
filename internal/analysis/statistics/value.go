// Package statistics implements the mathematics of the analysis: medians and quantiles with intervals, rank
// and permutation tests with corrections, trends, evenness, curves of counters, and the scalability law. It
// does not depend on records.
package statistics

import (
	"math"
	"slices"
)

// Value is a median with its interval over the trials of a cell.
type Value struct {
	Median float64 `json:"median"`
	Spread
	Values []float64 `json:"values"` // one per trial, in the order of the run
}

// Spread is the interval of the median of N values, or of N pairs of values.
type Spread struct {
	Low      float64 `json:"low"`
	High     float64 `json:"high"`
	N        int     `json:"n"`
	Interval string  `json:"interval"` // "single", "range", "order-statistic" or "pooled"
	Level    float64 `json:"level"`    // actual confidence level, 0 to 1; 0 for a range
}

// Kinds of intervals.
const (
	IntervalSingle = "single"          // n = 1: no interval
	IntervalRange  = "range"           // 2 ≤ n < 6: smallest and largest value
	IntervalOrder  = "order-statistic" // n ≥ 6: distribution-free interval of the median
	IntervalPooled = "pooled"          // percentile over all probes of all trials
)

// Pooled returns a percentile over all probes of n trials. pool contains the sorted round-trip times of all
// trials. The parameter each contains the percentile of every trial that has enough probes.
func Pooled(pool []float64, level float64, each []float64, n int) Value {
	v := Value{
		Spread: Spread{N: n, Interval: IntervalPooled},
		Median: QuantileSorted(pool, level),
		Values: each,
	}
	if len(each) > 1 {
		v.Low = min(slices.Min(each), v.Median)
		v.High = max(slices.Max(each), v.Median)
		return v
	}

	low, high := quantileRanks(len(pool), level)
	v.Low = pool[low-1]
	v.High = pool[high-1]
	v.Level = Level
	if v.Values == nil {
		v.Values = []float64{}
	}

	return v
}

// quantileRanks returns the ranks of the order statistics that enclose the q-quantile of n values with 95 %
// confidence. It uses the binomial distribution of the number of values below the quantile.
func quantileRanks(n int, q float64) (low, high int) {
	low = 1
	high = n
	sum := 0.0
	for k := range n {
		sum += math.Exp(logChoose(n, k) + float64(k)*math.Log(q) + float64(n-k)*math.Log1p(-q))
		if sum <= (1-Level)/2 {
			low = k + 1
		}

		if sum >= 1-(1-Level)/2 {
			high = k + 1
			break
		}
	}

	return min(low, n), min(max(high, low), n)
}

// TrimmedMean returns the mean of the smallest values. It uses the given share of the values, but at least
// one value. It returns false if there are no values or the mean is infinite.
func TrimmedMean(values []float64, share float64) (float64, bool) {
	if len(values) == 0 {
		return 0, false
	}

	slices.Sort(values)
	keep := values[:max(int(share*float64(len(values))), 1)]
	mean := Total(keep) / float64(len(keep))
	return mean, !math.IsInf(mean, 1)
}

// Level is the target confidence level of all intervals. The actual level of an order-statistic interval is
// at least Level.
const Level = 0.95

// MinInterval is the smallest number of values for which a two-sided 95 % order-statistic interval of the
// median exists: 2·0.5⁶ = 3.1 % ≤ 5 %.
const MinInterval = 6

// Median returns the middle value, or the mean of the two middle values. It returns NaN without values.
func Median(values []float64) float64 {
	s := slices.Clone(values)
	slices.Sort(s)
	return MedianSorted(s)
}

func MedianSorted(s []float64) float64 {
	n := len(s)
	switch {
	case n == 0:
		return math.NaN()
	case n%2 == 1:
		return s[n/2]
	}
	return s[n/2-1]/2 + s[n/2]/2
}

// QuantileSorted returns the q-quantile of sorted values. This is the smallest value such that at least the
// share q of all values does not exceed it (type 1 of Hyndman and Fan, 1996).
func QuantileSorted(s []float64, q float64) float64 {
	if len(s) == 0 {
		return math.NaN()
	}

	i := int(math.Ceil(q*float64(len(s))-1e-9)) - 1
	return s[min(max(i, 0), len(s)-1)]
}

// Carries reports whether n independent values are enough for a two-sided 95 % order-statistic interval of
// their q-quantile. This requires qⁿ ≤ 2.5 % and (1-q)ⁿ ≤ 2.5 %, which takes 6 values for the median, 36 for
// p90, 368 for p99, 3688 for p99.9 and 36,888 for p99.99.
func Carries(n int, q float64) bool {
	return math.Pow(max(q, 1-q), float64(n)) <= (1-Level)/2
}

// MedianInterval returns the ranks, from 1, of the order statistics that enclose the median of n values with
// at least 95 % confidence for any distribution, and the exact level. ok is false for fewer than six values.
// See David and Nagaraja, Order Statistics, 3rd ed., §7.1.
func MedianInterval(n int) (low, high int, level float64, ok bool) {
	tail := 0.0 // P(Bin(n, ½) < low)
	for k := 1; k <= (n+1)/2; k++ {
		next := tail + binomialHalf(n, k-1)
		if 2*next > 1-Level {
			break
		}

		tail = next
		low = k
	}

	if low == 0 {
		return 0, 0, 0, false
	}

	return low, n + 1 - low, 1 - 2*tail, true
}

// binomialHalf returns the probability of k heads in n tosses of a fair coin.
func binomialHalf(n, k int) float64 { return math.Exp(logChoose(n, k) - float64(n)*math.Ln2) }

func logChoose(n, k int) float64 {
	a, _ := math.Lgamma(float64(n + 1))
	b, _ := math.Lgamma(float64(k + 1))
	c, _ := math.Lgamma(float64(n - k + 1))
	return a - b - c
}

// Summarise returns the median of values, one per trial. Its interval is the order-statistic interval if
// there are at least six values, otherwise their range. Summarise panics without values.
func Summarise(values []float64) Value {
	s := slices.Clone(values)
	slices.Sort(s)
	n := len(s)
	v := Value{
		Spread: Spread{Low: s[0], High: s[n-1], N: n},
		Median: MedianSorted(s),
		Values: slices.Clone(values),
	}
	if n == 1 {
		v.Interval = IntervalSingle
		return v
	}

	v.Interval = IntervalRange
	if low, high, level, ok := MedianInterval(n); ok {
		v.Low = s[low-1]
		v.High = s[high-1]
		v.Level = level
		v.Interval = IntervalOrder
	}

	return v
}

// Narrow reports whether an adaptive plan may stop measuring. There must be at least min values (and at least
// six), and the full width of the median's interval must be at most width times the median. Stopping on the
// width hardly changes the coverage of the interval, as the tests verify, while stopping on a p-value would.
func Narrow(values []float64, width float64, min int) bool {
	if len(values) < max(min, MinInterval) {
		return false
	}

	v := Summarise(values)
	return v.Median > 0 && v.High-v.Low <= width*v.Median
}
