package statistics

import (
	"maps"
	"math"
	"math/bits"
	"slices"
	"sort"
)

// Holm corrects the p-values of one family of tests (Holm, 1979), so that the probability of rejecting any
// true null hypothesis stays at the level.
func Holm(p []float64) []float64 {
	order := upTo(len(p))
	sort.SliceStable(order, func(a, b int) bool { return p[order[a]] < p[order[b]] })
	adjusted := make([]float64, len(p))
	worst := 0.0
	for i, k := range order {
		worst = math.Max(worst, math.Min(1, p[k]*float64(len(p)-i)))
		adjusted[k] = worst
	}

	return adjusted
}

// enumerable is the largest number of blocks for which FamilyTest tries all sign patterns: 2¹² = 4096.
const enumerable = 12

// FamilyTest returns the p-values of a family of paired comparisons, corrected for their number, and the name
// of the test. Each map holds one difference per block.
//
// A single comparison uses Wilcoxon's exact signed-rank test. Several comparisons on up to twelve blocks use
// the step-down maximum test of Westfall and Young (1993, algorithm 2.8) over all sign patterns of the
// blocks, with the Fisher–Pitman statistic |Σd| ÷ √Σd². This test is exact, accounts for the dependence
// between comparisons, and can reject with six blocks, which Holm's correction of two tests cannot. Ranks are
// not suitable here: with few blocks, noise reaches the largest rank sum as easily as a real difference.
// Beyond twelve blocks, signed-rank tests with Holm's correction have enough power.
func FamilyTest(family []map[int]float64) (p []float64, name string) {
	blocks := BlocksOf(family)
	if len(family) == 1 || len(blocks) > enumerable {
		p = make([]float64, len(family))
		for i, f := range family {
			p[i] = SignedRank(InOrder(f, blocks))
		}
		return Holm(p), "Wilcoxon signed-rank, exact"
	}

	scores := make([][]float64, len(family)) // scores[comparison][block]
	observed := make([]float64, len(family))
	for i, f := range family {
		scores[i] = standardScores(f, blocks)
		observed[i] = math.Abs(Total(scores[i]))
	}

	// By symmetry, the sign of the last block need not be varied.
	return stepDown(scores, observed, upTo(1<<max(len(blocks)-1, 0))), "Fisher–Pitman sign-flip, exact"
}

// TestFamily applies FamilyTest to the members of a family that have at least MinInterval blocks. p is 0 for
// the other members. tested is the number of tested members.
func TestFamily(family []map[int]float64) (p []float64, tested int, name string) {
	p = make([]float64, len(family))
	var enough []map[int]float64
	var index []int
	for i, logs := range family {
		if len(logs) >= MinInterval {
			enough = append(enough, logs)
			index = append(index, i)
		}
	}

	adjusted, name := FamilyTest(enough)
	for k, i := range index {
		p[i] = adjusted[k]
	}

	return p, len(enough), name
}

// divisions is the largest number of ways to divide the blocks between two runs for which RunsTest still
// tries all of them. Two runs with eight blocks each can be divided in 12870 ways.
const divisions = 20000

// RunsTest returns the p-values of a family of comparisons of two runs, corrected for their number, and the
// name of the test. Each map holds the values of a metric in a run by block. There must be at least
// MinInterval values.
//
// RunsTest uses the same step-down maximum test as FamilyTest. It tries all divisions of the blocks between
// the runs, and compares the differences of the means. If there are too many divisions, it uses Mann–Whitney
// tests with Holm's correction, which then have enough power.
func RunsTest(a, b []map[int]float64) (p []float64, name string) {
	blocksA := BlocksOf(a)
	blocksB := BlocksOf(b)
	n := len(blocksA)
	all := len(blocksA) + len(blocksB)
	if len(a) < 2 || logChoose(all, n) > math.Log(divisions) {
		p = make([]float64, len(a))
		for i := range a {
			p[i] = MannWhitney(InOrder(a[i], blocksA), InOrder(b[i], blocksB))
		}
		return Holm(p), "Mann–Whitney U, exact"
	}

	scores := make([][]float64, len(a))
	observed := make([]float64, len(a))
	for i := range a {
		both := map[int]float64{} // by block of the first run, or n + block of the second run
		mean := Total(append(InOrder(a[i], blocksA), InOrder(b[i], blocksB)...)) / float64(len(a[i])+
			len(b[i]))
		put := func(values map[int]float64, blocks []int, from int) {
			for k, block := range blocks {
				if v, ok := values[block]; ok {
					both[from+k] = v - mean
				}
			}
		}
		put(a[i], blocksA, 0)
		put(b[i], blocksB, n)
		scores[i] = standardScores(both, upTo(all))
		observed[i] = math.Abs(Total(scores[i][:n]) - Total(scores[i][n:]))
	}

	free := all
	if 2*n == all {
		free-- // by symmetry, the last block need not be moved
	}

	var patterns []int
	for x := range 1 << free {
		if bits.OnesCount(uint(x)) == n {
			patterns = append(patterns, x)
		}
	}

	return stepDown(scores, observed, patterns), "Fisher–Pitman permutation, exact"
}

func upTo(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

func BlocksOf(family []map[int]float64) []int {
	seen := map[int]bool{}
	for _, f := range family {
		for b := range f {
			seen[b] = true
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// ByBlock returns values in the order of their blocks.
func ByBlock(f map[int]float64) []float64 { return InOrder(f, BlocksOf([]map[int]float64{f})) }

func InOrder(f map[int]float64, blocks []int) []float64 {
	var out []float64
	for _, b := range blocks {
		if d, ok := f[b]; ok {
			out = append(out, d)
		}
	}
	return out
}

// standardScores returns the differences of a comparison by block. They are scaled so that their sum has the
// variance 1 under random signs. The difference of a missing block is 0.
func standardScores(f map[int]float64, blocks []int) []float64 {
	scores := make([]float64, len(blocks))
	squares := 0.0
	for i, b := range blocks {
		scores[i] = f[b]
		squares += f[b] * f[b]
	}

	if squares == 0 {
		return scores
	}

	for i := range scores {
		scores[i] /= math.Sqrt(squares)
	}

	return scores
}

func Total(v []float64) float64 {
	s := 0.0
	for _, x := range v {
		s += x
	}
	return s
}

// stepDown returns the p-values. For each comparison, from the strongest to the weakest, it counts the sign
// patterns for which this comparison or a weaker one reaches the observed statistic of this comparison.
func stepDown(scores [][]float64, observed []float64, patterns []int) []float64 {
	order := upTo(len(observed))
	sort.SliceStable(order, func(a, b int) bool { return observed[order[a]] > observed[order[b]] })
	reached := make([]int, len(order))
	const same = 1e-9
	for _, pattern := range patterns {
		largest := 0.0
		for i, k := range slices.Backward(order) {
			sum := 0.0
			for b, s := range scores[k] {
				if pattern>>b&1 == 1 {
					s = -s
				}

				sum += s
			}

			largest = math.Max(largest, math.Abs(sum))
			if largest >= observed[k]-same {
				reached[i]++
			}
		}
	}

	adjusted := make([]float64, len(observed))
	worst := 0.0
	for i, k := range order {
		worst = math.Max(worst, float64(reached[i])/float64(len(patterns)))
		adjusted[k] = worst
	}

	return adjusted
}
