package report

import "github.com/chokepoint-lab/chokepoint/internal/unit"

// curves show a metric against a factor that is a number: packets per second by packet size, goodput by
// streams or MTU.
type curves struct {
	Label, XName, YName, Unit string
	X                         []float64 // the levels that were measured
	Lines                     []curveLine
}

type curveLine struct {
	Class, Name string
	Points      []curvePoint
}

type curvePoint struct {
	X, Median, Low, High float64
	Whisker              bool
	Title                string
}

// Draw puts the levels of X at even distances: they are settings that were chosen, and what lies between
// them was not measured.
func (k curves) Draw(width float64) string {
	const top, height = 14, 240
	left, right := 56.0, 12.0
	c := &canvas{w: width, h: top + height + 42}
	x := func(v float64) float64 {
		for i, level := range k.X {
			if level == v {
				return left + 24 + (width-right-left-48)*float64(i)/max(1, float64(len(k.X)-1))
			}
		}
		return left
	}
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
		c.line("grid", left, y.at(m), width-right, y.at(m))
		c.text("ax", "end", left-8, y.at(m)+4, tickText(s, m))
	}
	for _, level := range k.X {
		c.text("ax", "middle", x(level), top+height+17, tickText(unit.Scale{Div: 1}, level))
	}
	c.text("ax", "start", left, top+height+36, k.XName)
	c.text("ax unit", "start", left+4, top+10, k.YName+", "+s.Unit)
	for _, l := range k.Lines {
		l.draw(c, x, y)
	}
	return c.svg(k.Label)
}

func (l curveLine) draw(c *canvas, x func(float64) float64, y linear) {
	var p polyline
	for _, pt := range l.Points {
		p.to(x(pt.X), y.at(pt.Median))
	}
	c.path("line "+l.Class, p.b.String())
	for _, pt := range l.Points {
		at := x(pt.X)
		c.open(pt.Title)
		if pt.Whisker {
			c.path("whisker", "M"+attr(at)+" "+attr(y.at(pt.Low))+"V"+attr(y.at(pt.High))+
				"M"+attr(at-4)+" "+attr(y.at(pt.Low))+"h8M"+attr(at-4)+" "+attr(y.at(pt.High))+"h8")
		}
		c.circle("point "+l.Class, at, y.at(pt.Median), 4)
		c.close()
	}
}
