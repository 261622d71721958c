package report

import (
	"cmp"
	"math"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// bars draws grouped horizontal bars that start at zero. It adds a dot for every run, whiskers for the
// interval, and marks for ceilings and thresholds. If there are round-trip times under load, it draws them to
// the right.
type bars struct {
	Label  string // for screen readers
	Axis   string // what the axis measures
	Unit   string // base unit of the metric
	Groups []barGroup
}

type barGroup struct {
	Name string
	Bars []bar
}

// sort sorts the groups by the length of their first bar, longest first.
func (b *bars) sort() {
	slices.SortStableFunc(b.Groups, func(x, y barGroup) int {
		return -cmp.Compare(x.Bars[0].Median, y.Bars[0].Median)
	})
}

// estimate is a median with its interval, prepared for a chart.
type estimate struct {
	Class             string // CSS class of the colour: c0 … c8
	Title             string // shown on hover
	Text              string // the median
	Median, Low, High float64
	Whisker, Doubt    bool
}

// estimate returns a cell's median and interval of a metric.
func (v *view) estimate(c *analysis.Cell, metric string) estimate {
	x := c.Metrics[metric]
	return estimate{
		Class:   v.class(c.Factors),
		Title:   c.Label + "\n" + v.numbersOf(metric, x),
		Text:    v.text(metric, x.Median),
		Median:  x.Median,
		Low:     x.Low,
		High:    x.High,
		Whisker: hasInterval(x),
		Doubt:   suspect(c),
	}
}

// whisker draws the interval, if any, at the height y.
func (e estimate) whisker(c *canvas, x linear, y float64) {
	if e.Whisker {
		c.whisker(x.at(e.Low), y, x.at(e.High), y)
	}
}

type bar struct {
	estimate
	Runs    []float64
	Ceiling float64 // 0 means that there is none
	Limit   float64 // threshold; 0 means that there is none
	Failed  string  // text to show instead of a number

	// Idle, Loaded and Loaded99 are round-trip times in ns; 0 means that there is none.
	Idle, Loaded, Loaded99 float64
}

const (
	narrowBelow = 600.0 // below this width, names are placed above what they describe

	labelRoom = 15 // space above a bar, for the number at its median
	barHeight = 13
	barGap    = 6
	barStep   = labelRoom + barHeight + barGap
	groupGap  = 16
	axisRoom  = 34
	// delayRoom is the width of the round-trip times in a wide drawing. delayColumn is their width in a
	// narrow drawing, which shows only numbers.
	delayRoom, delayColumn = 300, 66
)

func (b bars) each(visit func(bar)) {
	for _, g := range b.Groups {
		for _, x := range g.Bars {
			visit(x)
		}
	}
}

func (b bars) top() float64 {
	high := 0.0
	b.each(func(x bar) {
		high = slices.Max(append([]float64{high, x.Median, x.High, x.Ceiling, x.Limit}, x.Runs...))
	})
	return high
}

// delays returns the lowest and highest round-trip time. high is 0 if there are none.
func (b bars) delays() (low, high float64) {
	low = math.Inf(1)
	b.each(func(x bar) {
		for _, ns := range []float64{x.Idle, x.Loaded, x.Loaded99} {
			if ns > 0 && x.Loaded > 0 {
				low, high = min(low, ns), max(high, ns)
			}
		}
	})
	return low, high
}

// Draw puts the names of groups beside the bars or, on a narrow page, above them.
func (b bars) Draw(width float64) *canvas {
	c := &canvas{w: width, h: 4 + axisRoom, label: b.Label}
	narrow := width < narrowBelow
	for _, g := range b.Groups {
		c.h += float64(len(g.Bars))*barStep - barGap + groupGap
		if narrow && g.Name != "" {
			c.h += 19
		}
	}

	low, high := b.delays()
	right := width
	switch {
	case high > 0 && narrow:
		right -= delayColumn
	case high > 0:
		right -= delayRoom
	}

	numbers, room := 5, right*0.48-14
	if narrow {
		numbers, room = 3, width-7
	}

	names, shared := fitted(each(b.Groups, func(g barGroup) string { return g.Name }), room)
	left := 1.0
	if !narrow {
		for _, name := range names {
			left = max(left, min(textWidth(name, 13), room)+14)
		}
	}

	y := 4.0
	if shared != "" {
		c.text("ax", "start", 0, y+11, shorten(shared, 11.5, width))
		y += sharedRoom
		c.h += sharedRoom
	}

	marks := axisFrom0(b.top(), numbers)
	x := linear{0, marks[len(marks)-1], left, right - 12}
	d := delayAxis{narrow: narrow, right: width}
	if high > 0 {
		d.of = logarithmic{low / 1.3, high * 1.3, right + 34, width - 12} // leave a margin at both ends
	}

	b.axis(c, x, marks)
	d.axis(c)
	for i, g := range b.Groups {
		if narrow && g.Name != "" {
			c.text("t", "start", 7, y+11, shorten(names[i], 13, room))
			y += 19
		}

		middle := y + float64(len(g.Bars))*barStep/2 - barGap/2
		if !narrow {
			c.text("t", "end", left-12, middle+4.5, shorten(names[i], 13, left-12))
		}

		for _, one := range g.Bars {
			c.open(one.Title)
			one.draw(c, x, y)
			d.draw(c, one, y)
			c.close()
			y += barStep
		}

		y += groupGap - barGap
	}

	return c
}

func (b bars) axis(c *canvas, x linear, marks []float64) {
	base := c.h - axisRoom
	s := unit.ScaleOf(b.Unit, marks[len(marks)-1])
	for i, m := range marks {
		c.upright("grid", x.at(m), 0, base)
		anchor := "middle"
		if i == 0 && x.from < 10 {
			anchor = "start"
		}

		c.tick(anchor, x.at(m), base+15, tickText(s, m))
	}

	c.upright("axis", x.from, 0, base)
	name := b.Axis
	if s.Unit != "" {
		name += ", " + s.Unit
	}

	c.text("ax", "start", x.from, base+31, name)
}

// draw places the number above the mark of the median. A number beside the bar could be mistaken for the
// value at the end of the whisker.
func (b bar) draw(c *canvas, x linear, y float64) {
	top := y + labelRoom
	middle := top + barHeight/2.0
	if b.Failed != "" {
		c.text("t bad", "start", x.from+6, middle+4.5, b.Failed)
		return
	}

	at := x.at(b.Median)
	c.bar(b.Class, b.Doubt, x.from, top, at-x.from, barHeight)
	b.whisker(c, x, middle)
	for _, r := range b.Runs {
		c.circle("run", x.at(r), middle, 2)
	}

	if b.Limit > 0 {
		c.upright("limit", x.at(b.Limit), top-2, top+barHeight+2)
	}

	if b.Ceiling > 0 {
		c.upright("ceiling", x.at(b.Ceiling), top-2, top+barHeight+2)
	}

	c.upright("median", at, top-2, top+barHeight)
	c.over(at, top-4, x.from, x.to+12, b.Text)
}

// over centres a number above its mark, within the bounds left and right.
func (c *canvas) over(at, y, left, right float64, number string) {
	half := textWidth(number, 12.5) * .55 // more than half, because the text is bold
	c.text("v", "middle", min(max(at, left+half), right-half), y, number)
}

// delayAxis draws the idle and loaded round-trip times beside the bars, on a logarithmic axis.
type delayAxis struct {
	of     logarithmic
	narrow bool
	right  float64
}

func (d delayAxis) axis(c *canvas) {
	if d.of.high == 0 {
		return
	}

	base := c.h - axisRoom
	if d.narrow {
		c.text("ax", "end", d.right, base+31, "RTT, p50")
		return
	}

	for _, m := range delayTicks(d.of.low, d.of.high) {
		s := unit.ScaleOf("ns", m)
		c.upright("grid", d.of.at(m), 0, base)
		c.tick("middle", d.of.at(m), base+15, tickText(s, m)+" "+s.Unit)
	}

	c.text("ax", "start", d.of.from, base+31, "round trip: idle ○, under load ● to p99")
}

// delayTicks returns the powers of ten in a range. If there are fewer than two, it also returns twice and
// five times each power of ten.
func delayTicks(low, high float64) []float64 {
	within := func(steps ...float64) (out []float64) {
		for _, m := range decades(low, high) {
			for _, step := range steps {
				if v := step * m; v >= low && v <= high {
					out = append(out, v)
				}
			}
		}
		return out
	}
	if few := within(1); len(few) > 1 {
		return few
	}

	return within(1, 2, 5)
}

func (d delayAxis) draw(c *canvas, b bar, top float64) {
	if d.of.high == 0 || b.Loaded <= 0 {
		return
	}

	y := top + labelRoom + barHeight/2.0
	text := unit.Nanoseconds(b.Loaded)
	if d.narrow {
		c.text("ax", "end", d.right, y+4.5, text)
		return
	}

	far := max(b.Loaded, b.Loaded99)
	from := b.Loaded
	if b.Idle > 0 {
		from = min(from, b.Idle)
	}

	c.line("reach "+b.Class, d.of.at(from), y, d.of.at(far), y)
	if b.Loaded99 > 0 {
		c.upright("reach "+b.Class, d.of.at(far), y-4, y+4)
	}

	if b.Idle > 0 {
		c.circle("hollow "+b.Class, d.of.at(b.Idle), y, 3.5)
	}

	c.circle("point "+b.Class, d.of.at(b.Loaded), y, 4.5)
	c.over(d.of.at(b.Loaded), top+labelRoom-4, d.of.from, d.right, text)
}
