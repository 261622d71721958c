package statistics

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// noisy returns logarithms of a series with a step of a share at an index, and noise. A share of the values,
// outliers, lies up to a quarter lower.
func noisy(seed uint64, n, at int, step, noise, outliers float64) []float64 {
	r := rand.New(rand.NewPCG(seed, 7))
	out := make([]float64, n)
	for i := range out {
		out[i] = noise * r.NormFloat64()
		if i >= at {
			out[i] += math.Log1p(step)
		}

		if r.Float64() < outliers {
			out[i] -= r.Float64() / 4
		}
	}
	return out
}

// In series without a step at most one in twenty has a change point, with bad nights or without.
func TestNoChangePointInNoise(t *testing.T) {
	for _, c := range []struct {
		n        int
		outliers float64
	}{{12, 0}, {20, 0}, {60, 0}, {60, .04}, {200, 0}} {
		found := 0
		for seed := range uint64(200) {
			if len(ChangePoints(noisy(seed, c.n, 0, 0, .03, c.outliers))) > 0 {
				found++
			}
		}

		t.Logf("%d values, %v outliers: %d of 200 series", c.n, c.outliers, found)
		if found > 10 {
			t.Errorf("%d values, %v outliers: change points in %d of 200 series, want 10 at most", c.n,
				c.outliers, found)
		}
	}
}

// A step of 10 % in noise of 3 % is found within one value of its place.
func TestChangePointIsFound(t *testing.T) {
	for _, c := range []struct {
		n, at    int
		step     float64
		outliers float64
		want     int // of 200
	}{{20, 10, -.1, 0, 190}, {20, 10, .1, 0, 190}, {14, 10, -.1, 0, 170}, {60, 40, -.1, .04, 180}} {
		found, more := 0, 0
		for seed := range uint64(200) {
			points := ChangePoints(noisy(seed, c.n, c.at, c.step, .03, c.outliers))
			near := func(p ChangePoint) bool { return max(p.At-c.at, c.at-p.At) <= 1 }
			if slices.ContainsFunc(points, near) {
				found++
			}

			more += max(0, len(points)-1)
		}

		t.Logf("%+v: found %d of 200, %d more", c, found, more)
		if found < c.want || more > 20 {
			t.Errorf("%+v: found in %d of 200 series, and %d further points, want %d or more, and 20 at most",
				c, found, more, c.want)
		}
	}
}

// The statistic is that of its definition, and equal values, outliers and short series make no change point.
func TestDivisionsOfSmallSeries(t *testing.T) {
	values := []float64{3, 1, 2, 2, 9, 7, 8, 9}
	_, got := newEnergy(values).greatest()
	want := 0.0
	sum := func(a, b []float64) (s float64) {
		for _, x := range a {
			for _, y := range b {
				s += math.Abs(x - y)
			}
		}
		return s
	}
	for i := MinSegment; i <= len(values)-MinSegment; i++ {
		a, b := values[:i], values[i:]
		m, n := float64(i), float64(len(values)-i)
		want = max(want, m*n/(m+n)*(2*sum(a, b)/(m*n)-sum(a, a)/(m*(m-1))-sum(b, b)/(n*(n-1))))
	}

	if math.Abs(got-want) > 1e-9 {
		t.Errorf("greatest statistic: got %v, want %v", got, want)
	}

	for name, values := range map[string][]float64{
		"none": nil, "three": {1, 2, 3}, "equal": {1, 1, 1, 1, 1, 1, 1, 1, 1, 1},
		"three each": {1, 1, 1, 2, 2, 2}, "one outlier": {1, 1, 1, 1, 1, 9, 1, 1, 1, 1, 1},
		"outlier at the end": {1, 1.1, 1.2, 1.1, 1, 1.2, 1.1, 1, 1.1, 1.2, 9},
	} {
		if got := ChangePoints(values); len(got) > 0 {
			t.Errorf("%s: change points %v", name, got)
		}
	}
}

func BenchmarkChangePointsOfThousand(b *testing.B) {
	for name, step := range map[string]float64{"none": 0, "one": -.1} {
		values := noisy(1, 1000, 600, step, .03, .04)
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				ChangePoints(values)
			}
		})
	}
}
