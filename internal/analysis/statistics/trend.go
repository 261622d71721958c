package statistics

import (
	"maps"
	"math"
	"slices"
)

// TheilSen is the median of the slopes of all pairs (Sen, 1968): it does not move with single outliers.
func TheilSen(x, y []float64) float64 {
	var slopes []float64
	for i := range x {
		for j := i + 1; j < len(x); j++ {
			if x[j] != x[i] {
				slopes = append(slopes, (y[j]-y[i])/(x[j]-x[i]))
			}
		}
	}
	if len(slopes) == 0 {
		return 0
	}
	return Median(slopes)
}

// Kendall is the two-sided p-value of Mann and Kendall's test for a trend in equally spaced values: the
// normal approximation with correction for continuity and ties, good from about six values on.
func Kendall(y []float64) float64 {
	n := float64(len(y))
	s := 0.0
	ties := map[float64]float64{}
	for i := range y {
		ties[y[i]]++
		for j := i + 1; j < len(y); j++ {
			switch {
			case y[j] > y[i]:
				s++
			case y[j] < y[i]:
				s--
			}
		}
	}
	variance := n * (n - 1) * (2*n + 5)
	for _, v := range slices.Sorted(maps.Values(ties)) {
		variance -= v * (v - 1) * (2*v + 5)
	}
	if s == 0 || variance <= 0 {
		return 1
	}
	z := (math.Abs(s) - 1) / math.Sqrt(variance/18)
	return math.Erfc(z / math.Sqrt2)
}
