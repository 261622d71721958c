package report

import (
	"cmp"
	"math"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// timeline draws the rate during a trial and, below it, the load of each core.
type timeline struct {
	Label, Unit string
	Class       string  // colour of the cell
	Window      float64 // length of the measured window in s
	Lines       []timeLine
	Cores       []coreLine // cores during the trial that is drawn with a strong line
	CoreName    string     // name of the node that has the cores
}

type timeLine struct {
	Title  string
	Strong bool
	T, V   []float64
}

type coreLine struct {
	Name string
	T    []float64
	V    []*float64
}

const (
	plotTop    = 17
	plotHeight = 100
	plotLeft   = 40
	heatLevels = 10
)

// Draw shades the time outside the measured window.
func (t timeline) Draw(width float64) *canvas {
	c := &canvas{w: width, label: t.Label}
	from, to := t.span()
	x := linear{from, to, plotLeft, width - 6}
	row := t.rowHeight()
	heat := row * float64(len(t.Cores))
	foot := plotTop + plotHeight + 8.0
	c.h = foot + 16
	if heat > 0 {
		c.h += heat + 18
	}

	t.plot(c, x)
	if heat > 0 {
		t.heat(c, x, foot+10, row)
		c.text("ax", "start", plotLeft, foot+4, t.CoreName)
		foot += heat + 18
	}

	for _, m := range ticks(math.Ceil(from), to, 5) {
		c.tick("middle", x.at(m), foot+9, tickText(unit.Scale{Div: 1}, m)+" s")
	}

	return c
}

func (t timeline) span() (from, to float64) {
	to = t.Window
	for _, l := range t.Lines {
		n := len(l.T)
		if n > 0 {
			from, to = min(from, l.T[0]), max(to, l.T[n-1])
		}
	}

	if to <= from {
		to = from + 1
	}

	return from, to
}

func (t timeline) plot(c *canvas, x linear) {
	high := 0.0
	for _, l := range t.Lines {
		for _, v := range l.V {
			high = max(high, v)
		}
	}

	marks := axisFrom0(high, 4)
	y := linear{0, marks[len(marks)-1], plotTop + plotHeight, plotTop}
	if x.low < 0 {
		c.rect("outside", x.from, plotTop, x.at(0)-x.from, plotHeight)
	}

	if t.Window > 0 && t.Window < x.high {
		c.rect("outside", x.at(t.Window), plotTop, x.to-x.at(t.Window), plotHeight)
	}

	s := unit.ScaleOf(t.Unit, marks[len(marks)-1])
	for _, m := range marks {
		c.level(y.at(m), x.from, x.to, 6, tickText(s, m))
	}

	c.text("ax unit", "start", plotLeft, 9, s.Unit)
	for _, strong := range []bool{false, true} {
		for _, l := range t.Lines {
			if l.Strong == strong {
				l.draw(c, t.Class, x, y)
			}
		}
	}
}

// draw connects the points. Several points within a pixel are drawn as their range, to limit the size of
// the page for long trials.
func (l timeLine) draw(c *canvas, colour string, x, y linear) {
	var p polyline
	for i := 0; i < len(l.T) && i < len(l.V); {
		px := math.Round(x.at(l.T[i]))
		low := l.V[i]
		high := l.V[i]
		j := i + 1
		for j < len(l.T) && j < len(l.V) && math.Round(x.at(l.T[j])) == px {
			low, high = min(low, l.V[j]), max(high, l.V[j])
			j++
		}

		p.to(px, y.at(high))
		if low < high {
			p.to(px, y.at(low))
		}

		i = j
	}

	c.open(l.Title)
	c.path(marked(l.Strong, "run-line", " strong")+" "+colour, p.d)
	c.close()
}

func (t timeline) rowHeight() float64 {
	switch n := len(t.Cores); {
	case n <= 8:
		return 11
	case n <= 24:
		return 6
	default:
		return max(2, math.Floor(160/float64(n)))
	}
}

// heat draws one row per core, with one SVG path per level of darkness.
func (t timeline) heat(c *canvas, x linear, top, row float64) {
	var paths [heatLevels + 1]string
	for i, k := range t.Cores {
		y := top + float64(i)*row
		if row >= 10 {
			c.text("ax small", "end", plotLeft-6, y+row-2, k.Name)
		}

		k.cells(x, func(from, to float64, level int) {
			paths[level] += segment(math.Round(from), y+row/2, math.Round(to), y+row/2)
		})
	}

	for level := range paths {
		c.broad("h h"+strconv.Itoa(level), row-1, paths[level])
	}
}

// cells calls draw for each interval of constant level. It skips missing values.
func (k coreLine) cells(x linear, draw func(from, to float64, level int)) {
	begin, level := 0.0, -1
	left := x.from
	for i := range min(len(k.T), len(k.V)) {
		next := -1
		v := k.V[i]
		if v != nil && !math.IsNaN(*v) {
			next = int(math.Round(min(max(*v, 0), 1) * heatLevels))
		}

		if next != level {
			if level >= 0 {
				draw(begin, left, level)
			}

			begin, level = left, next
		}

		left = min(x.at(k.T[i]), x.to)
	}

	if level >= 0 {
		draw(begin, left, level)
	}
}

// coresByName compares names of cores by number, so that cpu2 precedes cpu10.
func coresByName(a, b string) int {
	stem := func(s string) string { return strings.TrimRight(s, "0123456789") }
	return cmp.Or(cmp.Compare(stem(a), stem(b)), cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
}
