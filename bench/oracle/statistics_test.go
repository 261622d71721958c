// Package oracle compares what the program computes and writes with golang.org/x/perf, the module of
// benchstat, and with Prometheus' parser. It stands here because the program itself must not require these
// modules.
package oracle

import (
	"math"
	"math/rand/v2"
	"testing"

	"golang.org/x/perf/benchmath"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
)

// benchmath, which benchstat is made of, is the oracle of medians, intervals and the Mann–Whitney test. Its
// intervals may be lopsided by one rank where that still gives 95 %; ours never are, so they contain its.
// Beyond 30 values its levels are approximations.
func TestStatistics(t *testing.T) {
	rng := rand.New(rand.NewPCG(20260101, 900))
	thresholds := benchmath.DefaultThresholds
	sample := func(values []float64) *benchmath.Sample {
		return benchmath.NewSample(append([]float64{}, values...), &thresholds)
	}
	equal := 0
	for n := statistics.MinInterval; n <= 30; n++ {
		values := make([]float64, n)
		other := make([]float64, 4+rng.IntN(9))
		for i := range values {
			values[i] = math.Exp(rng.NormFloat64())
		}

		for i := range other {
			other[i] = 1 + math.Exp(rng.NormFloat64())
		}

		got := statistics.Summarise(values)
		want := benchmath.AssumeNothing.Summary(sample(values), statistics.Level)
		if got.Median != want.Center {
			t.Errorf("n=%d: median %v, want %v", n, got.Median, want.Center)
		}

		if got.Low > want.Lo || got.High < want.Hi || got.Level < want.Confidence-1e-9 {
			t.Errorf("n=%d: [%v, %v] at %v, want [%v, %v] at %v in it", n, got.Low, got.High, got.Level,
				want.Lo, want.Hi, want.Confidence)
		}

		if math.Abs(got.Level-want.Confidence) < 1e-9 {
			equal++
			if got.Low != want.Lo || got.High != want.Hi {
				t.Errorf("n=%d: [%v, %v], want [%v, %v] at the same level", n, got.Low, got.High, want.Lo,
					want.Hi)
			}
		}

		p := statistics.MannWhitney(values, other)
		if want := benchmath.AssumeNothing.Compare(sample(values), sample(other)).P; math.Abs(p-want) > 1e-9 {
			t.Errorf("n=%d and %d: Mann–Whitney p %v, want %v", n, len(other), p, want)
		}
	}

	if equal < 10 {
		t.Errorf("only %d of 25 intervals have the oracle's level", equal)
	}
}
