package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
)

// opening is the page's first screen. It shows the rates, what limits them, latency under load, and the path
// with its choke point. The sections below contain all other numbers.
type opening struct {
	Rates   rates
	Limits  []limit
	Latency *loadedLatency
	Path    *Figure
}

// loadedLatency holds the median round-trip times of the cell whose load adds the most delay.
type loadedLatency struct {
	Who                 string
	Idle, Loaded, Added TableCell
	Interval            string // of the round-trip time under load, with the number of trials
	Grade               string // bufferbloat grade
	Tone                Tone
	Doubt               bool
}

// The first screen shows at most maxRates rows and maxLimits limits. A phone has space for fewer, so the page
// hides the rest there.
const (
	maxRates, phoneRates = 12, 10
	maxLimits            = 5
	// phoneLines is the number of lines for the limits on a phone. A limit wider than limitWide, or a row's
	// name wider than nameWide, takes more than one line.
	phoneLines          = 14
	limitWide, nameWide = 335, 160
)

// rates holds the rate of each cell, grouped by colour.
type rates struct {
	Axis   string // description of the axis of the bars
	Spread string // heading of the intervals; "" if there are none
	Delays bool   // some rows show round-trip times
	Doubt  bool   // some rows are suspect
	Groups []rateGroup
	Cells  int // number of cells with a rate
	Shown  int

	Fastest bool // only the fastest rows of each group are shown
}

type rateGroup struct {
	Name, Class string
	Rows        []rateRow
}

type rateRow struct {
	Name, Key    string
	Rate         TableCell
	Spread       string
	Bar          Drawing // nil if the rate's metric is not that of the axis
	Idle, Loaded TableCell
	Doubt        bool
	Desk         bool // hidden on a phone

	cell *analysis.Cell
	rank int // number of faster rows with the same metric in the group
}

// limit describes what limited cells, how certain that is, and what to change.
type limit struct {
	Who, Text, Sure, Fix string

	Desk bool // hidden on a phone
}

// openingOf returns the first screen of a page that has the given number of alerts above it.
func openingOf(v *view, alerts int) opening {
	o := opening{
		Rates: v.rates(),
		Limits: each(v.found(), func(f finding) limit {
			return limit{Who: v.who(f, maxNamed), Text: f.Verdict.Text, Sure: f.certainty(), Fix: f.fix()}
		}),
		Latency: v.loadedLatency(),
		Path:    v.openingPath(),
	}
	lines := 2*alerts - phoneRates + o.Latency.lines()
	o.Rates.each(func(r *rateRow) { lines += len(phoneText(r.Name, nameWide)) })
	for i := range o.Limits {
		lines += o.Limits[i].lines()
		o.Limits[i].Desk = i > 0 && lines > phoneLines
	}

	return o
}

// lines returns the number of lines of a limit on a phone.
func (l limit) lines() int {
	return len(phoneText(l.Who+": "+l.Text+" · "+l.Sure, limitWide)) +
		len(phoneText(around("Fix ", l.Fix, ""), limitWide))
}

// loadedLatency describes the cell whose load adds the most delay. It returns nil unless both the load and
// the idle path of that cell were measured.
func (v *view) loadedLatency() *loadedLatency {
	c, ns := v.HighestAddedRTT()
	if c == nil || !has(c, idleP50) || !has(c, loadedP50) {
		return nil
	}

	grade := metrics.Bufferbloat(ns)
	return &loadedLatency{
		Who:      strings.Join(v.cellWords(c), " · "),
		Idle:     v.cellOf(c, idleP50),
		Loaded:   v.cellOf(c, loadedP50),
		Added:    v.cellOf(c, rttAdded),
		Interval: v.intervalWords(loadedP50, c.Metrics[loadedP50]),
		Grade:    grade,
		Tone:     bloatTone(grade),
		Doubt:    suspect(c),
	}
}

// lines returns the number of lines on a phone, including the heading and the space above it.
func (l *loadedLatency) lines() int {
	if l == nil {
		return 0
	}
	return 2 + len(phoneText(l.Who+": "+l.Idle.Text+" → "+l.Loaded.Text+bracket(l.Interval)+" · added "+
		l.Added.Text+" · bufferbloat grade "+l.Grade, limitWide))
}

// phoneText breaks text into lines of the given width, in the font size of the first screen.
func phoneText(text string, width float64) []string {
	return broken(text, func(line string) bool { return textWidth(line, 13) <= width })
}

// Shown returns the limits on the first screen.
func (o opening) Shown() []limit { return o.Limits[:min(len(o.Limits), maxLimits)] }

// Left returns the number of limits that are only in the section below.
func (o opening) Left() int { return len(o.Limits) - len(o.Shown()) }

// LeftOnPhone returns the number of limits that a phone does not show on the first screen.
func (o opening) LeftOnPhone() int {
	return o.Left() + len(filter(o.Shown(), func(l limit) bool { return l.Desk }))
}

// maxNamed is the maximum number of sets of cells that the first screen names.
const maxNamed = 3

// cellWords returns the words that distinguish a cell from the other cells, in the order of its label.
func (v *view) cellWords(c *analysis.Cell) []string {
	head, rest := v.headAndRest(c)
	if factor.Tunnel.Is(c.Factors, factor.NoTunnel) {
		head = append([]string{"no tunnel"}, head...)
	}
	return append(head, rest...)
}

// rates groups the cells by the levels that the page shows by colour.
func (v *view) rates() rates {
	// The rate of a cell with a search is from a single trial of the search, so use the results of the
	// search.
	if len(v.Searches) > 0 {
		return v.searchedRates()
	}

	cells := v.cells(func(c *analysis.Cell) bool {
		return loaded(c) || enciphered(c) || has(c, metrics.Number)
	})
	out := rates{Cells: len(cells), Spread: pageIntervalHead(cells)}
	all, by := grouped(cells, func(c *analysis.Cell) string { return c.Factors[v.line] })
	for _, level := range all {
		words := each(by[level], v.cellWords)
		shared := inAll(words) // a group with a single row has no name, because the row would repeat it
		g := rateGroup{Name: strings.Join(shared, " · "), Class: v.colour(v.line, level)}
		for i, c := range by[level] {
			name := cmp.Or(strings.Join(without(words[i], shared...), " · "), c.Label)
			g.Rows = append(g.Rows, v.rateRow(c, name))
		}

		g.rankRows()
		out.Groups = append(out.Groups, g)
	}

	out.shorten()
	out.addBars(v)
	return out
}

// searchedRates returns the results of searches with their bounds, by goal.
func (v *view) searchedRates() rates {
	out := rates{Spread: "Bounds"}
	for _, s := range v.Searches {
		g := rateGroup{Name: s.Label}
		for _, r := range s.Results {
			out.Cells++
			if out.Shown < maxRates {
				out.Shown++
				g.Rows = append(g.Rows, rateRow{
					Name:   r.Goal,
					Key:    s.Factors.Key(),
					Rate:   TableCell{Text: throughputCell(v, s.Unit, r).Text},
					Spread: v.rateOr(s.Unit, r.Lower) + " – " + v.rateOr(s.Unit, r.Upper),
					Doubt:  r.Irregular != "",
					Desk:   out.Shown > phoneRates,
				})
			}
		}

		if len(g.Rows) > 0 {
			out.Groups = append(out.Groups, g)
		}
	}

	out.each(func(row *rateRow) { out.Doubt = out.Doubt || row.Doubt })
	return out
}

// Columns returns the number of columns of the table.
func (r rates) Columns() int {
	n := 2
	if r.Axis != "" {
		n++
	}

	if r.Spread != "" {
		n++
	}

	if r.Delays {
		n += 2
	}

	return n
}

// pageIntervalHead returns the heading of the intervals, or "" if there are none. The heading names the kind
// and the number of trials if all intervals are of the same kind.
func pageIntervalHead(cells []*analysis.Cell) string {
	kinds, runs := intervalKinds(cells, rateMetric)
	switch len(kinds) {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("%s (n\u00a0=\u00a0%s)", upperFirst(kinds[0]), runs)
	}
	return "Interval"
}

// rateMetric returns the metric of the number that rateCell shows.
func rateMetric(c *analysis.Cell) string {
	if has(c, metrics.Number) {
		return metrics.Number
	}
	return rateOf(c)
}

func (v *view) rateRow(c *analysis.Cell, name string) rateRow {
	metric := rateMetric(c)
	r := rateRow{
		Name:   name,
		Key:    c.Factors.Key(),
		Rate:   ofRow(v.cellOf(c, metric)),
		Spread: v.spread(metric, c.Metrics[metric]),
		Idle:   ofRow(v.cellOf(c, idleP50)),
		Loaded: ofRow(v.cellOf(c, loadedP50)),
		Doubt:  suspect(c),
		cell:   c,
	}
	if c.Grade == evidence.GradeFailed || c.Grade == evidence.GradeNotReached {
		r.Rate = graded(c.Grade)
	}
	return r
}

// ofRow removes the cell's name from a number, because the row names the cell.
func ofRow(c TableCell) TableCell {
	if c.Num != nil {
		n := *c.Num
		n.Cell = ""
		c.Num = &n
	}
	return c
}

// shorten removes the slower rows of each group and metric that do not fit on the first screen. It marks rows
// that do not fit on a phone.
func (r *rates) shorten() {
	most := maxRates
	fast := func(row *rateRow) bool { return row.rank < most }
	for ; most > 1 && r.count(fast) > maxRates; most-- {
	}

	for i := range r.Groups {
		g := &r.Groups[i]
		g.Rows = filter(g.Rows, func(row rateRow) bool { return fast(&row) })
		g.Rows = g.Rows[:min(len(g.Rows), maxRates-r.Shown)]
		r.Shown += len(g.Rows)
	}

	r.Groups = filter(r.Groups, func(g rateGroup) bool { return len(g.Rows) > 0 })
	r.Fastest = r.Left() > 0
	for hidden := r.Shown - phoneRates; hidden > 0; hidden-- {
		var slowest *rateRow
		r.each(func(row *rateRow) {
			if !row.Desk && (slowest == nil || row.rank >= slowest.rank) {
				slowest = row
			}
		})
		slowest.Desk = true
	}
}

// count counts the rows for which is returns true.
func (r *rates) count(is func(*rateRow) bool) (n int) {
	r.each(func(row *rateRow) {
		if is(row) {
			n++
		}
	})
	return n
}

// rankRows sets the rank of each row. The rank is the number of faster rows with the same metric.
func (g *rateGroup) rankRows() {
	negative := func(row rateRow) (metric string, rate float64) {
		metric = rateMetric(row.cell)
		return metric, -row.cell.Metrics[metric].Median
	}
	rates := map[string][]float64{}
	for _, row := range g.Rows {
		metric, rate := negative(row)
		rates[metric] = append(rates[metric], rate)
	}

	for _, all := range rates {
		slices.Sort(all)
	}

	for i, row := range g.Rows {
		metric, rate := negative(row)
		g.Rows[i].rank, _ = slices.BinarySearch(rates[metric], rate)
	}
}

// Left returns the number of cells without a row.
func (r rates) Left() int { return r.Cells - r.Shown }

// LeftOnPhone returns the number of cells without a row on a phone.
func (r rates) LeftOnPhone() int {
	return r.Left() + r.count(func(row *rateRow) bool { return row.Desk })
}

// Desk reports whether a phone shows no row of the group.
func (g rateGroup) Desk() bool {
	return !slices.ContainsFunc(g.Rows, func(row rateRow) bool { return !row.Desk })
}

// each calls visit for each row.
func (r *rates) each(visit func(*rateRow)) {
	for i := range r.Groups {
		for k := range r.Groups[i].Rows {
			visit(&r.Groups[i].Rows[k])
		}
	}
}

// addBars draws bars only for the metric of the first row, because bars of different metrics cannot be
// compared.
func (r *rates) addBars(v *view) {
	metric, top := "", 0.0
	r.each(func(row *rateRow) {
		metric = cmp.Or(metric, rateMetric(row.cell))
		r.Doubt = r.Doubt || row.Doubt
		r.Delays = r.Delays || row.Loaded.Num != nil
		x := row.cell.Metrics[metric]
		if rateMetric(row.cell) == metric {
			top = max(top, x.Median, x.High)
		}
	})
	if top == 0 {
		return
	}

	marks := axisFrom0(top, 3)
	top = marks[len(marks)-1]
	s := v.scale(metric, top)
	r.Axis = "0 to " + joined(" ", tickText(s, top), s.Unit)
	r.each(func(row *rateRow) {
		if rateMetric(row.cell) == metric && has(row.cell, metric) {
			row.Bar = rateBar{v.estimate(row.cell, metric), top}
		}
	})
}

// rateBar draws a median with its interval, on an axis from zero to top.
type rateBar struct {
	estimate
	top float64
}

// Draw marks the median. The table beside it shows the number.
func (b rateBar) Draw(width float64) *canvas {
	const middle = 7
	c := &canvas{w: width, h: 2 * middle}
	x := linear{0, b.top, 0, width}
	c.bar(b.Class, b.Doubt, 0, middle-3.5, x.at(b.Median), 7)
	b.whisker(c, x, middle)
	c.upright("median", x.at(b.Median), 1, 2*middle-1)
	return c
}

// openingPath draws the path of the first finding, reduced for the first screen. Without a finding, it draws
// the first path under test.
func (v *view) openingPath() *Figure {
	for _, f := range v.found() {
		if len(f.Path) > 0 {
			return &Figure{Title: f.Cell.Label, Draw: strip(f.Path)}
		}
	}

	for _, p := range v.pictures() {
		return &p
	}
	return nil
}
