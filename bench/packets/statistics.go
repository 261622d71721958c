package main

import (
	"math"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

const minPairs = 6 // below it, an order-statistic interval of 95 % does not exist

// interval is a median; low and high are the order statistics that hold the true median with at least 95 %.
type interval struct{ median, low, high float64 }

// ratioOf is that of the pairs' ratios.
func ratioOf(a, b []float64) interval {
	var v []float64
	for i := range a {
		v = append(v, a[i]/b[i])
	}
	return intervalOf(v)
}

func intervalOf(values []float64) interval {
	v := slices.Sorted(slices.Values(values))
	k := rank(len(v))
	return interval{median(v), v[k], v[len(v)-1-k]}
}

// rank is the largest k such that the k-th smallest (from 0) and k-th largest of n values hold the median
// with at least 95 %: the sign test's interval.
func rank(n int) int {
	tail, term := 0.0, math.Pow(0.5, float64(n))
	k := 0
	for i := 0; 2*(tail+term) <= 0.05; i++ {
		tail += term
		term *= float64(n-i) / float64(i+1)
		k = i
	}
	return k
}

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// quantile of all directions' delays, in ns: the upper edge of the bucket that holds it; NaN if there are
// none.
func quantile(ways []record.OneWay, q float64) float64 {
	for _, way := range ways {
		total := int64(0)
		for _, c := range way.Counts {
			total += c.Packets
		}
		rank, seen := int64(math.Ceil(q*float64(total))), int64(0)
		for _, c := range way.Counts {
			if seen += c.Packets; seen >= rank {
				return float64(c.FromNs) * 33 / 32 // a bucket is at most this wide
			}
		}
	}
	return math.NaN()
}
