package report

import (
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// goodputSection: how fast is a transfer?
func goodputSection(v *view) Section {
	cells := v.cells(func(c *analysis.Cell) bool { return loaded(c) && !packets(c) })
	s := Section{ID: "goodput", Title: "How fast is a transfer?"}
	if len(cells) == 0 {
		return s
	}
	s.Blocks = barBlocks(v, cells, "goodput", goodput, "TCP goodput at the receiver")
	return s
}

// packetSection: how many packets per second, and how many are lost?
func packetSection(v *view) Section {
	cells := v.cells(func(c *analysis.Cell) bool { return loaded(c) && packets(c) })
	s := Section{ID: "packets", Title: "How many packets per second?"}
	if len(cells) == 0 {
		return s
	}
	s.Blocks = barBlocks(v, cells, "packets", packetRate, "UDP packets that arrived")
	return s
}

// barBlocks draws one metric of some cells: what is compared by colour stands side by side in groups of
// what else varies.
func barBlocks(v *view, cells []*analysis.Cell, id, metric, what string) []Block {
	names := v.varying(cells)
	line := lineFactor(cells, names)
	if len(names) == 1 && line != string(factor.Tunnel) {
		line = "" // the names of the bars say it already
	}
	rest := independent(cells, without(names, line), line)
	shown := levels(cells, line)
	b := bars{Label: what + ", one bar per cell", Axis: what, Unit: v.unitOf(metric)}
	index := map[string]int{}
	var limits, ceilings bool
	for _, c := range cells {
		key := v.setWords(c.Factors, rest)
		if key == "" {
			key = c.Label
		}
		i, ok := index[key]
		if !ok {
			i = len(b.Groups)
			index[key] = i
			b.Groups = append(b.Groups, barGroup{Name: key})
		}
		one := v.bar(c, metric, "c"+colour(shown, c.Factors[line]))
		limits = limits || one.Limit > 0
		ceilings = ceilings || one.Ceiling > 0
		b.Groups[i].Bars = append(b.Groups[i].Bars, one)
	}
	figure := Figure{ID: id + "-bars", Draw: b, Legend: v.legend(line, shown, cells, limits, ceilings),
		Table: v.numbers(id+"-numbers", cells, metric),
		Title: what + " by setting"}
	figure.Caption = "Bar: median over runs. Dots: every single run. Whisker: " +
		v.intervalsOf(cells, metric) + "." + ceilingWords(cells, ceilings)
	return []Block{figure}
}

// colour numbers a level from 1; a cell without the factor gets the first.
func colour(shown []string, level string) string {
	for i, l := range shown {
		if l == level {
			return string(rune('1' + i%maxColours))
		}
	}
	return "1"
}

func (v *view) legend(line string, shown []string, cells []*analysis.Cell, limits,
	ceilings bool) []LegendItem {
	var out []LegendItem
	if line != "" {
		for _, l := range shown {
			out = append(out, LegendItem{"bar c" + colour(shown, l), v.Catalogue.Of(line).Words(l) +
				v.implied(cells, line, l)})
		}
	}
	for _, c := range cells {
		if c.Grade == evidence.GradeSuspect {
			out = append(out, LegendItem{"bar c1 doubt", "suspect, see its reason in the table"})
			break
		}
	}
	if ceilings {
		out = append(out, LegendItem{"ceiling", "theoretical ceiling"})
	}
	if limits {
		out = append(out, LegendItem{"limit", "required"})
	}
	return out
}

// ceilingWords says what the results can be compared with.
func ceilingWords(cells []*analysis.Cell, some bool) string {
	seen := map[string]bool{}
	var words []string
	for _, c := range cells {
		text := c.Ceiling.Kind
		if c.Ceiling.Bps > 0 {
			text += " → " + unit.Bitrate(c.Ceiling.Bps).String()
		}
		if text != "" && !seen[text] {
			seen[text] = true
			words = append(words, text)
		}
	}
	if len(words) == 0 {
		return ""
	}
	if !some {
		return " Theoretical ceiling: " + strings.Join(words, "; ") + "."
	}
	return " Theoretical ceilings of goodput: " + strings.Join(words, "; ") + "."
}

func (v *view) bar(c *analysis.Cell, metric, class string) bar {
	x, ok := c.Metrics[metric]
	b := bar{Class: class, Title: c.Label, Doubt: c.Grade == evidence.GradeSuspect}
	if !ok {
		b.Failed = "no number"
		if c.Grade == evidence.GradeFailed {
			b.Failed = "failed"
		}
		return b
	}
	b.Median, b.Low, b.High, b.Whisker = x.Median, x.Low, x.High, hasInterval(x)
	b.Runs, b.Text = x.Values, v.text(metric, x.Median)
	b.Title += "\n" + v.sentence(metric, x)
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

// numbers is the table behind a chart of one metric.
func (v *view) numbers(id string, cells []*analysis.Cell, metric string) *Table {
	t := &Table{ID: id, Folded: true, Caption: "The numbers of this chart", Columns: []Column{
		{Head: "Cell"}, {Head: "Median", Sub: metric, Numeric: true}, {Head: "Low", Numeric: true},
		{Head: "High", Numeric: true}, {Head: "n", Numeric: true}, {Head: "Interval"},
		{Head: "Header efficiency", Numeric: true}, {Head: "Of ceiling", Numeric: true},
		{Head: "Of the tester's own ceiling", Numeric: true},
	}}
	for _, c := range cells {
		row := TableRow{Cells: []TableCell{{Text: c.Label}}}
		x, ok := c.Metrics[metric]
		if !ok {
			row.Cells = append(row.Cells, missingCell(c, metric), TableCell{}, TableCell{}, TableCell{},
				TableCell{})
		} else {
			row.Cells = append(row.Cells, v.statCells(c, metric, x)...)
		}
		row.Cells = append(row.Cells, ratioCell(c.Ceiling.HeaderEfficiency, ""),
			ratioCell(c.Ceiling.Ratio, c.Ceiling.Kind), ratioCell(c.Ceiling.TesterRatio,
				c.Ceiling.TesterKind))
		t.Rows = append(t.Rows, row)
	}
	return t
}

// statCells are median, low, high, n and the kind of the interval.
func (v *view) statCells(c *analysis.Cell, metric string, x statistics.Value) []TableCell {
	s := unit.ScaleOf(v.unitOf(metric), x.Median)
	stat := func(name string, y float64) TableCell {
		return TableCell{Text: s.Text(y), Num: &Number{c.Factors.Key(), metric, name, y}}
	}
	out := []TableCell{stat("median", x.Median), {Text: "–", Tone: Quiet}, {Text: "–", Tone: Quiet}}
	if hasInterval(x) {
		out[1], out[2] = stat("low", x.Low), stat("high", x.High)
	}
	return append(out, TableCell{Text: unit.Significant(float64(x.N), 9)}, TableCell{Text: intervalName(x)})
}

func ratioCell(ratio float64, note string) TableCell {
	if ratio == 0 {
		return TableCell{Text: "–", Sub: note, Tone: Quiet}
	}
	return TableCell{Text: unit.Percent(ratio), Sub: note}
}
