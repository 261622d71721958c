package analysis

import (
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

var ramp = []float64{1, 2, 4, 8, 16, 32}

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
		single, contention, coherence, ok := FitScaling(onCurve(1e9, c.contention, c.coherence, none))
		if !ok || math.Abs(single/1e9-1) > 1e-6 || math.Abs(contention-c.contention) > 1e-6 ||
			math.Abs(coherence-c.coherence) > 1e-6 {
			t.Errorf("%s: got %v, %v, %v, %v, want 1e9, %v, %v", name, single, contention, coherence, ok,
				c.contention, c.coherence)
		}
	}
	// 1 % noise: the serial share is found to within a few points, and neither parameter ever gets below
	// zero.
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		points := onCurve(1e9, .2, 0, func() float64 { return .01 * r.NormFloat64() })
		_, contention, coherence, ok := FitScaling(points)
		if !ok || contention < 0 || coherence < 0 || math.Abs(contention-.2) > .05 || coherence > .01 {
			t.Fatalf("with noise: got %v and %v, %v, want .2 and 0", contention, coherence, ok)
		}
	}
	if _, _, _, ok := FitScaling([]ScalingPoint{{1, 0}, {2, 0}}); ok {
		t.Error("nothing flows: got a fit")
	}
}

func TestScalingNeedsSixLevelsOfOneFactor(t *testing.T) {
	cells := func(levels []float64, tunnel string) []*group {
		var out []*group
		for i, p := range onCurve(1e9, .1, .01, func() float64 { return 0 }) {
			if i >= len(levels) {
				break
			}
			g := &group{factors: record.Factors{"streams": strconv.Itoa(int(p.Level)), "tunnel": tunnel,
				"protocol": "tcp"}}
			g.cell.Metrics = map[string]Value{goodput: Summarise([]float64{p.GoodputBps})}
			out = append(out, g)
		}
		return out
	}
	got := scalings(append(cells(ramp, "none"), cells(ramp[:5], "wireguard")...))
	if len(got) != 1 || got[0].Factors["tunnel"] != "none" || got[0].Factor != "streams" ||
		len(got[0].Points) != 6 {
		t.Fatalf("got %+v, want one fit of the six levels without tunnel", got)
	}
	if s := got[0]; math.Abs(s.Peak-math.Sqrt(.9/.01)) > 1e-3 || s.R2 < .999 || !strings.Contains(s.Text,
		"more than 9 make it slower") {
		t.Errorf("got %+v, want a peak at nine", s)
	}
}
