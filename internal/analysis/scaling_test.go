package analysis

import (
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

var ramp = []float64{1, 2, 4, 8, 16, 32}

func TestScalingNeedsSixLevelsOfOneFactor(t *testing.T) {
	cells := func(levels []float64, tunnel string) []*group {
		var out []*group
		for i, p := range onCurve(1e9, .1, .01, func() float64 { return 0 }) {
			if i >= len(levels) {
				break
			}

			g := &group{factors: record.Factors{"streams": strconv.Itoa(int(p.Level)), "tunnel": tunnel,
				"protocol": "tcp"}}
			g.cell.Metrics = map[string]statistics.Value{
				metrics.Goodput: statistics.Summarise([]float64{p.GoodputBps})}
			out = append(out, g)
		}
		return out
	}
	got := scalings(declaredFactors(), append(cells(ramp, "none"), cells(ramp[:5], "wireguard")...), nil)
	if len(got) != 1 || got[0].Factors["tunnel"] != "none" || got[0].Factor != "streams" ||
		len(got[0].Points) != 6 {
		t.Fatalf("got %+v, want one fit of the six levels without tunnel", got)
	}

	s := got[0]
	if math.Abs(s.Peak-math.Sqrt(.9/.01)) > 1e-3 || s.R2 < .999 || !strings.Contains(s.Text,
		"more than 9 make it slower") {
		t.Errorf("got %+v, want a peak at nine", s)
	}
}

func onCurve(single, contention, coherence float64, noise func() float64) []statistics.ScalingPoint {
	var out []statistics.ScalingPoint
	for _, n := range ramp {
		out = append(out, statistics.ScalingPoint{
			Level: n,
			GoodputBps: single * n / (1 + contention*(n-1) +
				coherence*n*(n-1)) * (1 +
				noise()),
		})
	}
	return out
}
