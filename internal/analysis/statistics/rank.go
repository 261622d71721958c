package statistics

import (
	"maps"
	"math"
	"slices"
	"sort"
)

// exactRanks is the largest sample for which rank tests enumerate the exact distribution. For larger samples,
// the normal approximation is accurate to three digits.
const exactRanks = 60

// SignedRank returns the two-sided p-value of Wilcoxon's signed-rank test for differences that are symmetric
// about zero. It drops zeros and gives ties their mean rank. The distribution is exact for these ranks
// (Lehmann, Nonparametrics, ch. 3). It returns 1 if all differences are zero.
func SignedRank(differences []float64) float64 {
	differences = slices.DeleteFunc(slices.Clone(differences), func(d float64) bool { return d == 0 })
	abs := make([]float64, len(differences))
	for i, d := range differences {
		abs[i] = math.Abs(d)
	}

	ranks := doubledRanks(abs)
	plus := 0
	total := 0
	for i, r := range ranks {
		if total += r; differences[i] > 0 {
			plus += r
		}
	}

	switch n := len(ranks); {
	case n == 0:
		return 1
	case n > exactRanks:
		squares := 0.0
		for _, r := range ranks {
			squares += float64(r) * float64(r)
		}

		z := (math.Abs(float64(plus)-float64(total)/2) - 0.5) / (math.Sqrt(squares) / 2)
		return math.Erfc(math.Max(z, 0) / math.Sqrt2)
	}

	// shares[s] is the share of the 2ⁿ sign patterns whose positive doubled ranks sum to s.
	shares := make([]float64, total+1)
	shares[0] = 1
	reach := 0
	for _, r := range ranks {
		reach += r
		for s := reach; s >= 0; s-- {
			v := shares[s] / 2
			if s >= r {
				v += shares[s-r] / 2
			}

			shares[s] = v
		}
	}

	return twoSided(shares, plus)
}

// doubledRanks returns twice the mean rank of each value, which is an integer even for ties.
func doubledRanks(values []float64) []int {
	order := upTo(len(values))
	sort.Slice(order, func(a, b int) bool { return values[order[a]] < values[order[b]] })
	ranks := make([]int, len(values))
	for i := 0; i < len(order); {
		j := i
		for j < len(order) && values[order[j]] == values[order[i]] {
			j++
		}

		for _, k := range order[i:j] {
			ranks[k] = i + 1 + j // twice the mean of ranks i+1 … j
		}

		i = j
	}

	return ranks
}

// twoSided returns twice the smaller of the two tails of a distribution at the observed sum.
func twoSided(share []float64, at int) float64 {
	low := 0.0
	high := 0.0
	for s, w := range share {
		if s <= at {
			low += w
		}

		if s >= at {
			high += w
		}
	}
	return math.Min(1, 2*math.Min(low, high))
}

// MannWhitney returns the two-sided p-value of the Mann–Whitney U test for two independent samples. It is
// exact, also with ties, for up to 60 values. For more values, it uses the normal approximation with a
// correction for ties.
func MannWhitney(a, b []float64) float64 {
	n := len(a)
	m := len(b)
	if n == 0 || m == 0 {
		return 1
	}

	ranks := doubledRanks(slices.Concat(a, b))
	sum := 0
	most := 0
	for i, r := range ranks {
		if most += r; i < n {
			sum += r
		}
	}

	if n+m > exactRanks {
		return mannWhitneyNormal(ranks, n, sum)
	}

	// shares[k][s] is the number of subsets of k ranks that sum to s.
	shares := make([][]float64, n+1)
	for k := range shares {
		shares[k] = make([]float64, most+1)
	}

	shares[0][0] = 1
	for _, r := range ranks {
		for k := n; k >= 1; k-- {
			for s := most; s >= r; s-- {
				shares[k][s] += shares[k-1][s-r]
			}
		}
	}

	all := math.Exp(logChoose(n+m, n))
	for s := range shares[n] {
		shares[n][s] /= all
	}

	return twoSided(shares[n], sum)
}

func mannWhitneyNormal(ranks []int, n, sum int) float64 {
	total := float64(len(ranks))
	mean := 0.0
	squares := 0.0
	for _, r := range ranks {
		mean += float64(r) / total
	}

	for _, r := range ranks {
		squares += (float64(r) - mean) * (float64(r) - mean)
	}

	variance := float64(n) * (total - float64(n)) / (total * (total - 1)) * squares
	if variance == 0 {
		return 1
	}

	// Doubled ranks differ by 2, so the continuity correction is 1.
	z := (math.Abs(float64(sum)-float64(n)*mean) - 1) / math.Sqrt(variance)
	return math.Erfc(math.Max(z, 0) / math.Sqrt2)
}

// Shift returns the Hodges–Lehmann estimate of the shift from a to b (the median of all differences), with
// the interval that inverts the Mann–Whitney test. ok is false if the samples are too small for a 95 %
// interval.
func Shift(a, b []float64) (shift, low, high, level float64, ok bool) {
	var d []float64
	for _, x := range a {
		for _, y := range b {
			d = append(d, y-x)
		}
	}

	slices.Sort(d)
	shift = MedianSorted(d)
	share := rankSumShare(len(a), len(b))
	tail := 0.0
	c := 0
	for c < len(share) && 2*(tail+share[c]) <= 1-Level {
		tail += share[c]
		c++
	}

	if c == 0 || len(d) == 0 {
		return shift, math.NaN(), math.NaN(), 0, false
	}

	return shift, d[c-1], d[len(d)-c], 1 - 2*tail, true
}

// rankSumShare returns the null distribution of U for samples of n and m values without ties.
func rankSumShare(n, m int) []float64 {
	// The generating function is the Gaussian binomial coefficient: for i = 1 … n, multiply by (1 - x^(m+i))
	// and divide by (1 - x^i).
	share := make([]float64, n*m+1)
	share[0] = 1
	for i := 1; i <= n; i++ {
		for s := n * m; s >= m+i; s-- {
			share[s] -= share[s-m-i]
		}

		for s := i; s <= n*m; s++ {
			share[s] += share[s-i]
		}
	}

	sum := Total(share)
	for s := range share {
		share[s] = math.Max(share[s], 0) / sum
	}

	return share
}

// TheilSen returns the median of the slopes of all pairs (Sen, 1968), which is robust against outliers.
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

// Kendall returns the two-sided p-value of the Mann–Kendall test for a trend in equally spaced values. It
// uses the normal approximation with corrections for continuity and ties, which is accurate from about six
// values.
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
