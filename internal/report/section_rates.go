package report

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// goodputSection shows how fast a bulk transfer is.
func goodputSection(v *view, s *Section) {
	cells := v.cells(func(c *analysis.Cell) bool { return loaded(c) && !packets(c) })
	if !with(cells, goodput) {
		return
	}

	s.addBars(v, cells, goodput, "TCP goodput"+v.countedBy("at the receiver"))
}

// packetSection shows how many packets per second pass, and how many are lost.
func packetSection(v *view, s *Section) {
	cells := v.cells(func(c *analysis.Cell) bool { return loaded(c) && packets(c) })
	if !with(cells, packetRate) || len(cells) == 1 && len(v.cells(loaded)) > 1 {
		return // the table shows the number, and a single bar compares nothing
	}

	s.addBars(v, cells, packetRate, "UDP packets that arrived")
}

// addBars draws the bars of one metric. Levels that the page shows by colour are side by side. The other
// varying factors form groups.
func (s *Section) addBars(v *view, cells []*analysis.Cell, metric, what string) {
	names := v.varying(cells)
	line := v.line
	if !slices.Contains(names, line) || len(names) == 1 && line != string(factor.Tunnel) {
		line = "" // the names of the bars already include it
	}

	rest := independent(cells, without(names, line), line)
	b := bars{Label: what + ", one bar per cell", Axis: what, Unit: v.unitOf(metric)}
	var limits, ceilings bool
	groups, by := grouped(cells, func(c *analysis.Cell) string {
		return cmp.Or(v.setWords(c.Factors, rest), c.Label)
	})
	for _, name := range groups {
		g := barGroup{Name: name}
		for _, c := range by[name] {
			one := v.bar(c, metric)
			limits = limits || one.Limit > 0
			ceilings = ceilings || one.Ceiling > 0
			g.Bars = append(g.Bars, one)
		}

		b.Groups = append(b.Groups, g)
	}

	title := what
	_, high := b.delays()
	if high > 0 {
		title += ", with the round trip under load"
	}

	whiskers := v.intervalsOf(cells, metric)
	s.add(Figure{
		ID:      s.ID + "-bars",
		Draw:    b,
		Whisker: whiskers,
		Legend:  v.legend(line, cells, limits, ceilings),
		Table:   v.numbers(s.ID+"-numbers", cells, metric),
		Title:   title,
		Cells:   cells,
		Caption: "Bar and number: median over runs. Dots: every single run." + whiskerWords(whiskers) +
			ceilingWords(cells, ceilings),
	})
}

func (v *view) legend(line string, cells []*analysis.Cell, limits, ceilings bool) []LegendItem {
	var out []LegendItem
	if line != "" {
		for _, l := range levels(cells, line) {
			out = append(out, LegendItem{"bar " + v.colour(line, l), v.Catalogue.Of(line).Words(l) +
				v.implied(cells, line, l)})
		}
	}

	if i := slices.IndexFunc(cells, suspect); i >= 0 {
		out = append(out, doubtful(cells, "doubt "+v.class(cells[i].Factors))...)
	}

	if ceilings {
		out = append(out, LegendItem{"ceiling", "theoretical ceiling"})
	}

	if limits {
		out = append(out, LegendItem{"limit", "required"})
	}

	return out
}

// doubtful returns a legend for the marker of suspect results, if there are any. The footer of a saved chart
// lists the reasons.
func doubtful(cells []*analysis.Cell, class string) []LegendItem {
	if !slices.ContainsFunc(cells, suspect) {
		return nil
	}
	return []LegendItem{{class, suspectWord + ": the reason is in the table"}}
}

const suspectWord = "suspect"

// ceilingWords describes the ceilings that the results can be compared with.
func ceilingWords(cells []*analysis.Cell, some bool) string {
	var words []string
	for _, c := range cells {
		text := c.Ceiling.Kind
		if c.Ceiling.Bps > 0 {
			text += " → " + unit.Bitrate(c.Ceiling.Bps).String()
		}

		words = once(words, text)
	}

	title := " Theoretical ceiling: "
	if some {
		title = " Theoretical ceilings of goodput: "
	}

	return around(title, strings.Join(words, "; "), ".")
}

func (v *view) bar(c *analysis.Cell, metric string) bar {
	b := bar{estimate: v.estimate(c, metric), Runs: c.Metrics[metric].Values}
	if !has(c, metric) {
		b.Title = c.Label
		b.Failed = "no number"
		if c.Grade == evidence.GradeFailed || c.Grade == evidence.GradeNotReached {
			b.Failed = c.Grade
		}

		return b
	}

	b.Idle = c.Metrics[idleP50].Median
	b.Loaded = c.Metrics[loadedP50].Median
	b.Loaded99 = c.Metrics[loadedP99].Median
	if b.Loaded > 0 {
		b.Title += "\n" + v.numbersOf(loadedP50, c.Metrics[loadedP50])
	}

	if metric == goodput {
		b.Ceiling = c.Ceiling.Bps
	}

	for _, t := range v.Thresholds {
		if t.Metric == metric && t.Factors.Key() == c.Factors.Key() && t.Limit > 0 {
			b.Limit = t.Limit
		}
	}

	return b
}

// numbers returns the table with the numbers of a chart.
func (v *view) numbers(id string, cells []*analysis.Cell, metric string) *Table {
	t := &Table{
		ID:      id,
		Folded:  true,
		Caption: "The numbers of this chart",
		Columns: columns("Cell",
			"#Median|"+metrics.Label(metric), "#Low", "#High", "#n", "Interval", "#Header efficiency",
			"#Of ceiling", "#Of the tester's own ceiling"),
	}
	for _, c := range cells {
		stats := []TableCell{missingCell(c.Missing, metric), {}, {}, {}, {}}
		if x, ok := c.Metrics[metric]; ok {
			stats = v.statCells(c, metric, x)
		}

		t.row(c.Label, stats, ratioCell(c.Ceiling.HeaderEfficiency, ""),
			ratioCell(c.Ceiling.Ratio, c.Ceiling.Kind),
			ratioCell(testerShare(c), c.Ceiling.TesterKind))
	}

	t.dropEmpty()
	return t
}

// statCells returns the cells for median, low, high, n and kind of interval.
func (v *view) statCells(c *analysis.Cell, metric string, x statistics.Value) []TableCell {
	s := v.scale(metric, x.Median)
	stat := func(name string, y float64) TableCell {
		return TableCell{Text: s.Text(y), Num: &Number{c.Factors.Key(), metric, name, y}}
	}
	out := []TableCell{stat("median", x.Median), none, none}
	if hasInterval(x) {
		out[1], out[2] = stat("low", x.Low), stat("high", x.High)
	}

	return append(out, TableCell{Text: strconv.Itoa(x.N)}, TableCell{Text: intervalName(x)})
}

func ratioCell(ratio float64, note string) TableCell {
	if ratio == 0 {
		return TableCell{Text: "–", Sub: note, Tone: Quiet}
	}
	return TableCell{Text: unit.Ratio(ratio), Sub: note}
}
