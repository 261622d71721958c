package statistics

import (
	"maps"
	"math"
	"math/bits"
	"slices"
	"sort"
)

// Holm adjusts the p-values of one family of tests (Holm, 1979): the chance that any true null is rejected
// stays at the level.
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

// enumerable is the largest number of blocks whose sign patterns are all tried: 2¹² = 4096.
const enumerable = 12

// FamilyTest returns the p-values of a family of paired comparisons, adjusted for their number, and the name
// of the test. Each map holds one difference per block.
//
// One comparison alone is Wilcoxon's exact signed-rank test. Several on up to twelve blocks are the step-down
// maximum test of Westfall and Young (1993, algorithm 2.8) with every pattern of swapped blocks tried, on
// Fisher's and Pitman's statistic |Σd| ÷ √Σd². It is exact, accounts for what comparisons share, and can
// reject at six blocks, which Holm's correction of two tests could not; ranks would not do here, because with
// few blocks pure noise reaches the largest rank sum as easily as a real difference. Beyond twelve blocks
// Holm's correction of the signed-rank tests has enough power.
func FamilyTest(family []map[int]float64) (p []float64, name string) {
	blocks := BlocksOf(family)
	if len(family) == 1 || len(blocks) > enumerable {
		p = make([]float64, len(family))
		for i, f := range family {
			p[i] = SignedRank(InOrder(f, blocks))
		}
		return Holm(p), "Wilcoxon signed-rank, exact"
	}

	scores := make([][]float64, len(family)) // [comparison][block]
	observed := make([]float64, len(family))
	for i, f := range family {
		scores[i] = standardScores(f, blocks)
		observed[i] = math.Abs(Total(scores[i]))
	}

	// By symmetry the last block's sign can stay fixed.
	return stepDown(scores, observed, upTo(1<<max(len(blocks)-1, 0))), "Fisher–Pitman sign-flip, exact"
}

// TestFamily is FamilyTest for the members of a family with at least MinInterval blocks: p is 0 for the
// others, and tested counts those that were.
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

// divisions is the largest number of divisions of blocks between two runs that are all tried; eight against
// eight have 12870.
const divisions = 20000

// RunsTest returns the p-values of a family of comparisons of two runs, adjusted for their number, and the
// name of the test. Each map holds the values of a metric by block of its run, at least MinInterval of them.
//
// It is the same step-down maximum test, trying every division of all blocks between the runs, on the
// difference of the means; if there are too many divisions it uses Holm's correction of Mann–Whitney tests,
// which then has enough power.
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
		both := map[int]float64{} // block of the first run, or n + block of the second
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
		free-- // by symmetry the last block can stay fixed
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

// standardScores returns the differences of a comparison by block, scaled so that their sum has variance 1
// under random signs; 0 if a block is missing.
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

// stepDown counts, for each comparison from the strongest, the sign patterns for which the largest statistic
// of it and the weaker ones is at least as large.
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
