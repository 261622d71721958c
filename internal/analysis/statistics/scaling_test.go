package statistics

import (
	"math"
	"math/rand/v2"
	"testing"
)

func onCurve(single, contention, coherence float64, noise func() float64) []ScalingPoint {
	var out []ScalingPoint
	for _, n := range ramp {
		out = append(out, ScalingPoint{n, single * n / (1 + contention*(n-1) + coherence*n*(n-1)) * (1 +
			noise())})
	}
	return out
}

func TestScalingLawIsRecovered(t *testing.T) {
	none := func() float64 { return 0 }
	for name, c := range map[string]struct{ contention, coherence float64 }{
		"linear": {0, 0}, "a serial tenth": {.1, 0}, "no gain": {1, 0}, "worse with more": {.05, .01},
		"only coherence": {0, .003},
	} {
		s, ok := FitScaling(onCurve(1e9, c.contention, c.coherence, none))
		if !ok || math.Abs(s.SingleBps/1e9-1) > 1e-6 || math.Abs(s.Contention-c.contention) > 1e-6 ||
			math.Abs(s.Coherence-c.coherence) > 1e-6 {
			t.Errorf("%s: got %v, %v, want 1e9, %v, %v", name, s, ok, c.contention, c.coherence)
		}
	}

	// 1 % noise: the serial share is found to within a few points, and neither parameter ever gets below
	// zero.
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		points := onCurve(1e9, .2, 0, func() float64 { return .01 * r.NormFloat64() })
		s, ok := FitScaling(points)
		if !ok || s.Contention < 0 || s.Coherence < 0 || math.Abs(s.Contention-.2) > .05 ||
			s.Coherence > .01 {
			t.Fatalf("with noise: got %v, %v, want .2 and 0", s, ok)
		}
	}

	if _, ok := FitScaling([]ScalingPoint{{1, 0}, {2, 0}}); ok {
		t.Error("nothing flows: got a fit")
	}
}

var ramp = []float64{1, 2, 4, 8, 16, 32}
