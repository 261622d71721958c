package report

import (
	"math"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// curves plots a metric against a numeric factor, such as packets per second by packet size, or goodput by
// streams or MTU.
type curves struct {
	Label, XName, YName, Unit string
	X                         []float64 // measured levels of the factor
	Lines                     []curveLine
}

type curveLine struct {
	Class  string
	Points []curvePoint
}

type curvePoint struct {
	estimate
	X float64
}

// maxSpan is the maximum ratio of the highest to the lowest level on a linear axis.
const maxSpan = 4

// scale returns the name of the axis, and a function that maps the levels of X onto it. The axis is
// logarithmic if the levels span more than maxSpan.
func (k curves) scale(from, to float64) (at func(float64) float64, name string) {
	low := k.X[0]
	high := k.X[len(k.X)-1]
	if low > 0 && high > maxSpan*low {
		return logarithmic{low, high, from, to}.at, k.XName + " (logarithmic scale)"
	}
	return linear{low, high, from, to}.at, k.XName
}

// Draw draws the curves. The ticks of the x axis are the measured levels.
func (k curves) Draw(width float64) *canvas {
	const top, height = 28, 240 // top leaves space for the axis's name above all points
	left, right := 56.0, 12.0
	c := &canvas{w: width, h: top + height + 42, label: k.Label}
	x, name := k.scale(left+24, width-right-24)
	high := 0.0
	for _, l := range k.Lines {
		for _, p := range l.Points {
			high = max(high, max(p.Median, p.High))
		}
	}

	marks := axisFrom0(high, 5)
	y := linear{0, marks[len(marks)-1], top + height, top}
	s := unit.ScaleOf(k.Unit, y.high)
	for _, m := range marks {
		c.level(y.at(m), left, width-right, 8, tickText(s, m))
	}

	for _, level := range k.X {
		c.tick("middle", x(level), top+height+17, tickText(unit.Scale{Div: 1}, level))
	}

	c.text("ax", "start", left, top+height+36, name)
	c.text("ax", "start", left-8, 12, k.YName+", "+s.Unit)
	for i, l := range k.Lines { // shift the lines so that their intervals do not overlap
		aside := 6 * (float64(i) - float64(len(k.Lines)-1)/2)
		l.draw(c, func(v float64) float64 { return x(v) + aside }, y)
	}

	return c
}

func (l curveLine) draw(c *canvas, x func(float64) float64, y linear) {
	var p polyline
	for _, pt := range l.Points {
		p.to(x(pt.X), y.at(pt.Median))
	}

	c.path("line "+l.Class, p.d)
	for _, pt := range l.Points {
		at := x(pt.X)
		c.open(pt.Title)
		if pt.Whisker {
			c.whisker(at, y.at(pt.Low), at, y.at(pt.High))
		}

		c.circle(pointKind(pt.Doubt)+strings.Fields(l.Class)[0], at, y.at(pt.Median), 4)
		c.close()
	}
}

// pointKind returns the CSS class of a point. Suspect points are hollow.
func pointKind(doubt bool) string {
	if doubt {
		return "hollow "
	}
	return "point "
}

// quantilePlot plots the distributions of round-trip times. It has one curve per measurement, from the
// minimum on the left to the tail on the right. On its x axis, 90 %, 99 % and 99.9 % are equally far apart.
type quantilePlot struct {
	Label     string
	Low, High float64 // range of all plots in the row, so that readers can compare them
	Curves    []quantileCurve
}

type quantileCurve struct {
	Class      string // "idle", or the class of the cell's colour
	Title      string
	Levels, NS []float64
}

// nines returns the x coordinate of a quantile. It is −log10 of the share above the quantile.
func nines(level float64) float64 { return -math.Log10(1 - min(level, 0.99999)) }

// Draw draws the curves. The ticks of the x axis are common quantiles.
func (q quantilePlot) Draw(width float64) *canvas {
	c := &canvas{w: width, h: 8 + 140 + 20, label: q.Label}
	last := nines(.9)
	for _, k := range q.Curves {
		n := min(len(k.Levels), len(k.NS))
		if n > 0 {
			last = max(last, nines(k.Levels[n-1]))
		}
	}

	x := linear{0, last, plotLeft + 12, width - 12}
	marks := decades(q.Low, q.High)
	y := logarithmic{marks[0], marks[len(marks)-1], 148, 8}
	for _, m := range marks {
		s := unit.ScaleOf("ns", m)
		c.level(y.at(m), x.from, x.to, 6, tickText(s, m)+" "+s.Unit)
	}

	for _, m := range []struct {
		level float64
		name  string
	}{{0, "min"}, {.5, "p50"}, {.9, "p90"}, {.99, "p99"}, {.999, "p99.9"}, {.9999, "p99.99"}} {
		if nines(m.level) > last+1e-9 {
			continue
		}

		at := x.at(nines(m.level))
		c.upright("grid", at, 8, 148)
		c.tick("middle", at, 163, m.name)
	}

	for _, k := range q.Curves {
		k.draw(c, x, y)
	}

	return c
}

func (k quantileCurve) draw(c *canvas, x linear, y logarithmic) {
	var p polyline
	for i := range min(len(k.Levels), len(k.NS)) {
		p.to(x.at(nines(k.Levels[i])), y.at(k.NS[i]))
	}

	c.open(k.Title)
	c.path("q "+k.Class, p.d)
	c.close()
}
