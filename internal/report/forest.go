package report

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// forest draws ratios with their intervals around a line at ratio 1.
type forest struct {
	Label, Axis string
	Rows        []forestRow
}

type forestRow struct {
	estimate         // the ratio
	Group     string // heading above the first row of the group
	Name, Sub string
}

// Draw uses a logarithmic axis, so that half and double are equally far from 1.
func (f forest) Draw(width float64) *canvas {
	narrow := width < narrowBelow
	step := 42.0
	left := 1.0
	right := 150.0
	room := width*0.45 - 14
	if narrow {
		room = width - 7
	}

	names, shared := fitted(each(f.Rows, func(r forestRow) string { return r.Name }), room)
	for i, r := range f.Rows {
		right = max(right, textWidth(r.Text, 12.5)+14)
		left = max(left, textWidth(names[i], 13)+14, textWidth(r.Sub, 11.5)+14)
	}

	left = min(left, width*0.45)
	if narrow {
		step, left = 72, 1
	}

	right = min(right, width*0.45)
	c := &canvas{w: width, h: 40, label: f.Label}
	if shared != "" {
		c.h += sharedRoom
	}

	low, high := 1.0, 1.0
	for i, r := range f.Rows {
		if c.h += step; f.heads(i) {
			c.h += groupHead
		}

		for _, v := range []float64{r.Median, r.Low, r.High} {
			if v > 0 {
				low, high = min(low, v), max(high, v)
			}
		}
	}

	x := logarithmic{low / 1.06, high * 1.06, left, width - right}
	base := c.h - 34
	marks := ratioTicks(x.low, x.high)
	slices.SortStableFunc(marks, func(a, b float64) int { // put 1 first, because its label must be shown
		return cmp.Compare(math.Abs(math.Log(a)), math.Abs(math.Log(b)))
	})
	for _, m := range marks {
		if !narrow {
			c.upright(ratioLine(m), x.at(m), 0, base)
		}

		c.tick("middle", x.at(m), base+15, ratioTick(m))
	}

	c.text("ax", "start", left, base+31, f.Axis)
	y := 0.0
	if shared != "" {
		c.text("ax", "start", 0, 15, shorten(shared, 11.5, width))
		y = sharedRoom
	}

	for i, r := range f.Rows {
		r.Name = names[i]
		if f.heads(i) {
			c.text("v", "start", 7, y+20, shorten(r.Group, 12.5, width-14))
			y += groupHead
		}

		if narrow { // draw grid lines only beside the intervals, because the names take the full width
			for _, m := range marks {
				c.upright(ratioLine(m), x.at(m), y+45, y+63)
			}
		}

		r.draw(c, x, y, left, narrow)
		y += step
	}

	return c
}

// Heights of a group's heading, and of the line that shows the words common to all names.
const groupHead, sharedRoom = 30, 19

// ratioLine returns the CSS class of the grid line at a ratio.
func ratioLine(m float64) string {
	if m == 1 {
		return "one"
	}
	return "grid"
}

// heads reports whether row i is the first of its group, which is preceded by a heading.
func (f forest) heads(i int) bool {
	return f.Rows[i].Group != "" && (i == 0 || f.Rows[i-1].Group != f.Rows[i].Group)
}

func (r forestRow) draw(c *canvas, x logarithmic, y, left float64, narrow bool) {
	c.open(r.Title)
	defer c.close()
	middle := y + 18
	if narrow {
		c.text("t", "start", 7, y+13, shorten(r.Name, 13, c.w-7))
		c.text("ax", "start", 7, y+27, shorten(r.Sub, 11.5, c.w-7))
		middle = y + 54
	} else {
		c.text("t", "end", left-12, middle-2, shorten(r.Name, 13, left-12))
		c.text("ax", "end", left-12, middle+13, shorten(r.Sub, 11.5, left-12))
	}

	if !(r.Median > 0) {
		c.text("v", "start", left, middle+4.5, r.Text)
		return
	}

	if r.Whisker && r.Low > 0 {
		c.whisker(x.at(r.Low), middle, x.at(r.High), middle)
	}

	c.circle(pointKind(r.Doubt)+r.Class, x.at(r.Median), middle, 4.5)
	ratio, interval, ok := strings.Cut(r.Text, " (")
	c.over(x.at(r.Median), middle-8, left, c.w, ratio)
	if ok {
		c.text("ax", "start", x.to+10, middle+4.5, strings.TrimSuffix(interval, ")"))
	}
}

// ratioTick formats the ratio at a grid line. It omits trailing zeros, which the numbers beside the chart
// have.
func ratioTick(m float64) string {
	text := unit.Times(m)
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}

	return text
}

// ratioTicks returns a few round ratios within a range. They include 1 if the range includes it.
func ratioTicks(low, high float64) []float64 {
	all := []float64{1}
	for at, room := 1.0, high/low; room > 1 && at < 1e9; at *= 10 {
		steps := []float64{2, 5, 10}
		if room > 1e3 {
			steps = []float64{10} // there is space only for powers of ten
		}

		for _, s := range steps {
			all = append(all, at*s, 1/(at*s))
		}
	}

	slices.Sort(all)
	if high/low < 4 {
		all = []float64{.4, .5, .6, .7, .8, .9, 1, 1.1, 1.2, 1.5, 2, 2.5}
	}

	if high/low < 1.25 {
		all = []float64{.85, .9, .95, 1, 1.05, 1.1, 1.15}
	}

	return slices.DeleteFunc(all, func(v float64) bool { return v < low || v > high })
}
