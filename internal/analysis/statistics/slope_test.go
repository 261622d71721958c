package statistics

import (
	"math"
	"math/rand/v2"
	"testing"
)

// response makes blocks of three untouched points and three steps.
func response(rng *rand.Rand, slope, noise float64, blocks int) [][]Point {
	var out [][]Point
	for range blocks {
		level := 20 + rng.NormFloat64() // each block has its own
		var block []Point
		for _, r := range []float64{1, .9, 1, .75, 1, .5} {
			x := math.Log(r)
			block = append(block, Point{x, level + slope*x + noise*rng.NormFloat64()})
		}

		out = append(out, block)
	}
	return out
}

// TestBlockSlopeCovers: the interval holds the slope as often as it says, whatever it is.
func TestBlockSlopeCovers(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	const rounds = 150
	for _, slope := range []float64{0, .5, 1} {
		held := 0
		for range rounds {
			line, ok := BlockSlope(response(rng, slope, .1, 2))
			if !ok || line.Level != Level || line.N != 12 {
				t.Fatalf("got %+v", line)
			}

			if line.Low <= slope && slope <= line.High {
				held++
			}
		}

		// 95 % of 150 are 142; fewer than 134 happen once in a thousand.
		if held < 134 || held == rounds {
			t.Errorf("slope %g: %d of %d intervals held it", slope, held, rounds)
		}
	}
}

func TestBlockSlopeOfLittle(t *testing.T) {
	if line, ok := BlockSlope([][]Point{{{0, 1}, {-1, 0}}}); !ok || line.Slope != 1 || line.Level != 0 {
		t.Errorf("two points: got %+v, %v, want slope 1 without an interval", line, ok)
	}

	if _, ok := BlockSlope([][]Point{{{0, 1}}, {{-1, 0}}}); ok {
		t.Error("a slope of blocks that hold one step each")
	}

	if line, _ := BlockSlope(response(rand.New(rand.NewPCG(1, 2)), 1, 0, 2)); math.Abs(line.Low-1) > 1e-9 ||
		math.Abs(line.High-1) > 1e-9 {
		t.Errorf("without noise: got %+v, want 1 to 1", line)
	}
}

func TestKnee(t *testing.T) {
	of := func(k float64) (points []Point) {
		for _, r := range []float64{1, .8, .5, .25} {
			points = append(points, Point{math.Log(r), min(0, math.Log(r/k))})
		}
		return points
	}
	for _, want := range []float64{1, .9, .6, .3} {
		if got, ok := Knee(of(want)); !ok || math.Abs(got-want) > .01 {
			t.Errorf("got %g, %v, want %g", got, ok, want)
		}
	}

	if k, ok := Knee(of(.1)); ok {
		t.Errorf("a response that never bends has its knee at %g", k)
	}

	if _, ok := Knee(nil); ok {
		t.Error("a knee of no points")
	}
}
