package report

import (
	"math"

	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// quantilePlot shows the distribution of round-trip times: each curve is one measurement, from its smallest
// value at the left to the tail at the right, on axes where every further nine takes the same room.
type quantilePlot struct {
	Label     string
	Low, High float64 // of the whole row of plots, so that they compare
	Curves    []quantileCurve
}

type quantileCurve struct {
	Class      string // idle or loaded
	Title      string
	Levels, NS []float64
}

// nines is the place of a quantile on the axis.
func nines(level float64) float64 { return -math.Log10(1 - min(level, 0.99999)) }

// Draw shows the plot with marks at the quantiles people ask for.
func (q quantilePlot) Draw(width float64) string {
	c := &canvas{w: width, h: 8 + 140 + 20}
	last := nines(.9)
	for _, k := range q.Curves {
		if n := min(len(k.Levels), len(k.NS)); n > 0 {
			last = max(last, nines(k.Levels[n-1]))
		}
	}
	x := linear{0, last, plotLeft + 12, width - 12}
	low, high, marks := decades(q.Low, q.High)
	y := logarithmic{low, high, 148, 8}
	for _, m := range marks {
		c.line("grid", x.from, y.at(m), x.to, y.at(m))
		s := unit.ScaleOf("ns", m)
		c.text("ax", "end", x.from-6, y.at(m)+4, tickText(s, m)+" "+s.Unit)
	}
	for _, m := range []struct {
		level float64
		name  string
	}{{0, "min"}, {.5, "p50"}, {.9, "p90"}, {.99, "p99"}, {.999, "p99.9"}, {.9999, "p99.99"}} {
		if nines(m.level) > last+1e-9 {
			continue
		}
		at := x.at(nines(m.level))
		c.line("grid", at, 8, at, 148)
		c.text("ax", "middle", at, 163, m.name)
	}
	for _, k := range q.Curves {
		k.draw(c, x, y)
	}
	return c.svg(q.Label)
}

func (k quantileCurve) draw(c *canvas, x linear, y logarithmic) {
	var p polyline
	for i := range min(len(k.Levels), len(k.NS)) {
		p.to(x.at(nines(k.Levels[i])), y.at(k.NS[i]))
	}
	c.open(k.Title)
	c.path("q "+k.Class, p.b.String())
	c.close()
}
