package report

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// canvas collects the shapes of a drawing. Shapes have classes instead of colours; the page and the saved
// file add their style.
type canvas struct {
	shapes []shape
	w, h   float64
	label  string // for screen readers

	ticks []tickSpan // space taken by the numbers of axes
}

// shape is an SVG element. A titled or placed group extends to the next shape of kind end.
type shape struct {
	kind, class   string
	x, y, w, h, r float64
	text          string // text, title or path data
	anchor        string // of text: start, middle or end
}

// Kinds of shapes that are not names of SVG elements.
const (
	titled = "titled"
	placed = "placed"
	end    = "end"
)

type tickSpan struct{ y, from, to float64 }

// Widths at which drawings are made: a wide page, a phone, and a panel.
const (
	wideWidth   = 960
	narrowWidth = 358
	panelWidth  = 320
)

func attr(v float64) string { return rounded(v, 10) }

// rounded formats v, rounded to a multiple of 1 ÷ per.
func rounded(v, per float64) string {
	s := decimal(math.Round(v*per) / per)
	if s == "-0" {
		return "0"
	}
	return s
}

func (c *canvas) add(s shape) { c.shapes = append(c.shapes, s) }

func (c *canvas) line(class string, x1, y1, x2, y2 float64) { c.path(class, segment(x1, y1, x2, y2)) }

// upright draws a vertical line.
func (c *canvas) upright(class string, x, y1, y2 float64) { c.line(class, x, y1, x, y2) }

// level draws a grid line from left to right with its number, which ends before left by gap.
func (c *canvas) level(y, left, right, gap float64, number string) {
	c.line("grid", left, y, right, y)
	c.text("ax", "end", left-gap, y+4, number)
}

// segment returns the path data of a straight line.
func segment(x1, y1, x2, y2 float64) string {
	from := "M" + attr(x1) + " " + attr(y1)
	switch {
	case x1 == x2:
		return from + "V" + attr(y2)
	case y1 == y2:
		return from + "H" + attr(x2)
	}
	return from + "L" + attr(x2) + " " + attr(y2)
}

func (c *canvas) rect(class string, x, y, w, h float64) { c.box(class, x, y, max(w, 0), max(h, 0), 0) }

// box draws a rectangle with rounded corners.
func (c *canvas) box(class string, x, y, w, h, r float64) {
	c.add(shape{kind: "rect", class: class, x: x, y: y, w: w, h: h, r: r})
}

func (c *canvas) circle(class string, x, y, r float64) {
	c.add(shape{kind: "circle", class: class, x: x, y: y, r: r})
}

func (c *canvas) path(class, d string) { c.broad(class, 0, d) }

// broad draws a path with the given stroke width. The width 0 means the width in the style of class.
func (c *canvas) broad(class string, width float64, d string) {
	if d != "" {
		c.add(shape{kind: "path", class: class, w: width, text: d})
	}
}

// whisker draws a horizontal or vertical interval.
func (c *canvas) whisker(x1, y1, x2, y2 float64) {
	dx, dy := 0.0, 4.0
	if x1 == x2 {
		dx, dy = dy, dx
	}

	c.path("whisker", segment(x1, y1, x2, y2)+segment(x1-dx, y1-dy, x1+dx, y1+dy)+
		segment(x2-dx, y2-dy, x2+dx, y2+dy))
}

// bar draws a filled box. The box is hatched if the number is in doubt, as legends explain.
func (c *canvas) bar(class string, doubt bool, x, y, w, h float64) {
	if !doubt {
		c.rect("bar "+class, x, y, w, h)
		return
	}

	lines := ""
	for at := x - h + 5; at < x+w; at += 5 {
		// Each line runs from the bottom to the top edge, clipped at the sides.
		from := max(at, x)
		to := min(at+h, x+w)
		if from < to {
			lines += segment(from, y+h-(from-at), to, y+h-(to-at))
		}
	}

	c.path("hatch "+class, lines)
	c.rect("frame "+class, x, y, w, h)
}

func (c *canvas) text(class, anchor string, x, y float64, s string) {
	c.add(shape{kind: "text", class: class, anchor: anchor, x: x, y: y, text: s})
}

// tick draws the number of an axis unless it would overlap another one.
func (c *canvas) tick(anchor string, x, y float64, s string) {
	w := textWidth(s, 11.5) + 8
	span := tickSpan{y, x - w/2, x + w/2}
	if anchor == "start" {
		span.from = x
		span.to = x + w
	}

	for _, t := range c.ticks {
		if t.y == y && span.from < t.to && t.from < span.to {
			return
		}
	}

	c.ticks = append(c.ticks, span)
	c.text("ax", anchor, x, y, s)
}

// open begins a group with a title, which browsers show on hover.
func (c *canvas) open(title string) { c.add(shape{kind: titled, text: title}) }

func (c *canvas) close() { c.add(shape{kind: end}) }

// place draws another canvas at the given position.
func (c *canvas) place(drawing *canvas, x, y float64) {
	c.add(shape{kind: placed, x: x, y: y})
	c.shapes = append(c.shapes, drawing.shapes...)
	c.close()
}

// svg returns the drawing as an SVG element with additional attributes, and with additional markup in front
// of the shapes.
func (c *canvas) svg(attributes, before string) string {
	named := `aria-hidden="true"`
	if c.label != "" {
		named = `role="img" aria-label="` + plain(c.label) + `"`
	}
	return fmt.Sprintf(`<svg%s viewBox="0 0 %s %s" %s>%s%s</svg>`, attributes, attr(c.w), attr(c.h), named,
		before, strings.Join(each(c.shapes, shape.svg), ""))
}

// classes returns the classes of a shape, including one for the text anchor.
func (s shape) classes() string {
	if s.anchor == "middle" || s.anchor == "end" {
		return s.class + " " + s.anchor
	}
	return s.class
}

// plain escapes text for an SVG element or attribute.
func plain(s string) string { return html.EscapeString(printable(s)) }

func (s shape) svg() string {
	x := attr(s.x)
	y := attr(s.y)
	w := attr(s.w)
	h := attr(s.h)
	r := attr(s.r)
	unless := func(usual, name, value string) string {
		if value == usual {
			return ""
		}
		return " " + name + `="` + value + `"`
	}
	switch s.kind {
	case titled:
		return "<g><title>" + plain(s.text) + "</title>"
	case placed:
		return fmt.Sprintf(`<g transform="translate(%s %s)">`, x, y)
	case "path":
		return fmt.Sprintf(`<path class="%s"%s d="%s"/>`, s.class, unless("0", "stroke-width", w), s.text)
	case "circle":
		return fmt.Sprintf(`<circle class="%s" cx="%s" cy="%s" r="%s"/>`, s.class, x, y, r)
	case "rect":
		return fmt.Sprintf(`<rect class="%s" x="%s" y="%s" width="%s" height="%s"%s/>`, s.class, x, y, w, h,
			unless("0", "rx", r))
	case "text":
		return fmt.Sprintf(`<text class="%s" x="%s" y="%s">%s</text>`, s.classes(), x, y, plain(s.text))
	}

	return "</g>"
}

// textWidth returns the width of text at a font size. It assumes DejaVu Sans, which is wider than the fonts
// of other systems.
func textWidth(s string, size float64) float64 {
	w := 0.0
	for _, r := range s {
		switch {
		case strings.ContainsRune("iljftI.,:;'|!/()[] ·", r):
			w += 0.35
		case strings.ContainsRune("mwMW%+=×÷−<>~…—", r):
			w += 0.88
		case r >= 'A' && r <= 'Z':
			w += 0.69
		default:
			w += 0.61
		}
	}
	return w * size
}

// boldWider is the ratio of the width of bold text to that of regular text.
const boldWider = 1.13

// shorten shortens text to a width by replacing its middle with an ellipsis, because labels differ at their
// ends.
func shorten(s string, size, width float64) string {
	if textWidth(s, size) <= width {
		return s
	}

	r := []rune(s)
	cut := func(n int) string {
		head, tail := string(r[:(n+1)/2]), string(r[len(r)-n/2:])
		return strings.TrimRight(head, " ·,") + "…" + strings.TrimLeft(tail, " ·,")
	}
	n := len(r) - 1
	for n > 1 && textWidth(cut(n), size) > width {
		n--
	}

	return cut(n)
}

// Apart removes the words with which all labels start or end. shared holds the removed words, with an
// ellipsis in place of the words that differ. It is "" if no word was removed.
func Apart(labels []string) (short []string, shared string) {
	words := each(labels, strings.Fields)
	if len(words) < 2 {
		return labels, ""
	}

	first := words[0]
	fewest := slices.Min(each(words, func(w []string) int { return len(w) })) - 1 // keep at least one word
	alike := func(word func([]string) string) bool {
		return !slices.ContainsFunc(words, func(w []string) bool { return word(w) != word(first) })
	}
	begin, end := 0, 0
	for begin < fewest && alike(func(w []string) string { return w[begin] }) {
		begin++
	}

	for end < fewest-begin && alike(func(w []string) string { return w[len(w)-1-end] }) {
		end++
	}

	if begin+end == 0 {
		return labels, ""
	}

	plain := func(w []string) string { return strings.Trim(strings.Join(w, " "), " ·,") }
	short = each(words, func(w []string) string { return plain(w[begin : len(w)-end]) })
	return short, joined(" ", plain(first[:begin]), "…", plain(first[len(first)-end:]))
}

// fitted returns the labels unchanged if they fit. Otherwise it removes the words that all labels share, and
// returns a separate line with these words.
func fitted(labels []string, room float64) (short []string, said string) {
	if !slices.ContainsFunc(labels, func(s string) bool { return textWidth(s, 13) > room }) {
		return labels, ""
	}

	short, shared := Apart(labels)
	return short, around("all: ", shared, "")
}

// polyline builds path data, with a gap where a value is missing.
type polyline struct {
	d    string
	open bool
}

func (p *polyline) to(x, y float64) {
	command := "M"
	if p.open {
		command = "L"
	}

	p.open = !math.IsNaN(y)
	if p.open {
		p.d += command + attr(x) + " " + attr(y)
	}
}

// linear maps values from low to high onto coordinates.
type linear struct{ low, high, from, to float64 }

func (l linear) at(v float64) float64 {
	if l.high == l.low {
		return l.from
	}
	return l.from + (v-l.low)/(l.high-l.low)*(l.to-l.from)
}

// ticks returns round numbers from low to high, in steps of 1, 2 or 5 times a power of ten. The parameter
// want is the approximate number of ticks.
func ticks(low, high float64, want int) []float64 {
	if !(high > low) {
		return []float64{low}
	}

	raw := (high - low) / float64(want)
	mag := math.Pow(10, math.Floor(math.Log10(raw)))
	steps := []float64{1, 2, 5, 10}
	step := mag * steps[max(slices.IndexFunc(steps, func(m float64) bool { return m*mag >= raw*0.999 }), 0)]
	var out []float64
	for i := math.Ceil(low/step - 1e-9); i*step <= high*(1+1e-9)+1e-12; i++ {
		out = append(out, i*step)
	}

	return out
}

// axisFrom0 returns the ticks of an axis from zero to a round number.
func axisFrom0(high float64, want int) (marks []float64) {
	if !(high > 0) {
		high = 1
	}

	marks = ticks(0, high, want)
	last := marks[len(marks)-1]
	if last < high {
		marks = append(marks, last+marks[1])
	}

	return marks
}

// tickText formats a tick with as many digits as necessary.
func tickText(s unit.Scale, v float64) string {
	x := v / s.Div
	if math.Abs(x*1e3-math.Round(x*1e3)) < 1e-6*max(1, x*1e3) {
		return rounded(x, 1e3)
	}
	return unit.Significant(x, 3)
}

// logarithmic maps positive values onto coordinates by their logarithm.
type logarithmic struct{ low, high, from, to float64 }

func (l logarithmic) at(v float64) float64 {
	return linear{math.Log(l.low), math.Log(l.high), l.from, l.to}.at(math.Log(max(v, l.low/1e3)))
}

// decades returns the powers of ten from below to above a range.
func decades(low, high float64) (out []float64) {
	if !(low > 0) {
		low = 1
	}

	if !(high > low) {
		high = low * 10
	}

	for e := math.Floor(math.Log10(low)); e <= math.Ceil(math.Log10(high)); e++ {
		out = append(out, math.Pow(10, e))
	}

	return out
}
