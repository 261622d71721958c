package report

import (
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// bars are horizontal bars from zero in groups, with every single run as a dot, the interval as a whisker,
// and marks for ceilings and thresholds.
type bars struct {
	Label  string // for those who do not see it
	Axis   string // what the axis measures
	Unit   string // base unit
	Groups []barGroup
}

type barGroup struct {
	Name string
	Bars []bar
}

type bar struct {
	Class             string // c1 … c5
	Title             string // long form
	Text              string // the median
	Median, Low, High float64
	Whisker           bool
	Runs              []float64
	Ceiling           float64 // 0: none
	Limit             float64 // threshold, 0: none
	Failed            string  // instead of a number
	Doubt             bool
}

const (
	barHeight = 15
	barGap    = 5
	groupGap  = 16
)

func (b bars) top() float64 {
	high := 0.0
	for _, g := range b.Groups {
		for _, x := range g.Bars {
			high = slices.Max(append([]float64{high, x.Median, x.High, x.Ceiling, x.Limit}, x.Runs...))
		}
	}
	return high
}

// Draw puts the names of groups beside the bars, or above them on a narrow page.
func (b bars) Draw(width float64) string {
	c := &canvas{w: width}
	narrow := width < 600
	left, valueRoom := 0.0, 0.0
	for _, g := range b.Groups {
		left = max(left, textWidth(g.Name, 13))
		for _, x := range g.Bars {
			valueRoom = max(valueRoom, textWidth(x.Text+x.Failed, 12.5)+14)
		}
	}
	left = min(left+14, width*0.42)
	if narrow {
		left = 1
	}
	marks := axisFrom0(b.top(), map[bool]int{true: 3, false: 6}[narrow])
	x := linear{0, marks[len(marks)-1], left, width - min(valueRoom, width*0.35)}
	c.h = 4 + 34
	for _, g := range b.Groups {
		c.h += float64(len(g.Bars))*(barHeight+barGap) - barGap + groupGap
		if narrow && g.Name != "" {
			c.h += 19
		}
	}
	b.axis(c, x, marks)
	y := 4.0
	for _, g := range b.Groups {
		if narrow && g.Name != "" {
			c.text("t", "start", 7, y+11, shorten(g.Name, 13, width-7))
			y += 19
		}
		middle := y + float64(len(g.Bars))*(barHeight+barGap)/2 - barGap/2
		if !narrow {
			c.text("t", "end", left-12, middle+4.5, shorten(g.Name, 13, left-12))
		}
		for _, one := range g.Bars {
			one.draw(c, x, y)
			y += barHeight + barGap
		}
		y += groupGap - barGap
	}
	return c.svg(b.Label)
}

func (b bars) axis(c *canvas, x linear, marks []float64) {
	base := c.h - 34
	s := unit.ScaleOf(b.Unit, marks[len(marks)-1])
	for i, m := range marks {
		c.line("grid", x.at(m), 0, x.at(m), base)
		anchor := "middle"
		if i == 0 && x.from < 10 {
			anchor = "start"
		}
		c.text("ax", anchor, x.at(m), base+15, tickText(s, m))
	}
	c.line("axis", x.from, 0, x.from, base)
	name := b.Axis
	if s.Unit != "" {
		name += ", " + s.Unit
	}
	c.text("ax", "start", x.from, base+31, name)
}

func (b bar) draw(c *canvas, x linear, y float64) {
	c.open(b.Title)
	defer c.close()
	middle := y + barHeight/2.0
	if b.Failed != "" {
		c.text("t bad", "start", x.from+6, middle+4.5, b.Failed)
		return
	}
	class := "bar " + b.Class
	if b.Doubt {
		class += " doubt"
	}
	c.rect(class, x.from, y, x.at(b.Median)-x.from, barHeight)
	end := b.Median
	if b.Whisker {
		c.whisker(x.at(b.Low), x.at(b.High), middle)
		end = max(end, b.High)
	}
	for _, r := range b.Runs {
		c.circle("run", x.at(r), middle, 2)
		end = max(end, r)
	}
	at := x.at(end) + 8
	for _, m := range []struct {
		class string
		v     float64
	}{{"limit", b.Limit}, {"ceiling", b.Ceiling}} {
		if m.v <= 0 {
			continue
		}
		c.line(m.class, x.at(m.v), y-2, x.at(m.v), y+barHeight+2)
		// The number stands beside its bar unless it would cross the mark.
		if p := x.at(m.v); p > at-8 && p < at+textWidth(b.Text, 12.5)+8 {
			at = p + 8
		}
	}
	c.text("v", "start", at, middle+4.5, b.Text)
}
