package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/record"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/comparison"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// missedSection comes first: a run that misses a requirement says so before anything else.
func missedSection(v *view) Section {
	if missed(v) == 0 {
		return Section{}
	}
	return thresholdSection(v)
}

// metSection is the same table further down, if there is nothing to mind.
func metSection(v *view) Section {
	if missed(v) > 0 {
		return Section{}
	}
	return thresholdSection(v)
}

func missed(v *view) int {
	n := 0
	for _, t := range v.Thresholds {
		if !t.Met {
			n++
		}
	}
	return n
}

// thresholdSection: did the run meet what the plan requires?
func thresholdSection(v *view) Section {
	s := Section{ID: "requirements", Title: "Requirements"}
	if len(v.Thresholds) == 0 {
		return s
	}
	t := Table{ID: "threshold-table", Columns: []Column{{Head: "Outcome"}, {Head: "Requirement"},
		{Head: "Cell"},
		{Head: "Measured", Numeric: true}, {Head: "Reason"}}}
	for _, r := range v.Thresholds {
		row := TableRow{Cells: []TableCell{{Text: "met", Tone: Good}, {Text: r.Requirement},
			{Text: v.label(r.Factors), Long: r.Factors.Key()}, {Text: "–", Tone: Quiet}, {Text: r.Reason}}}
		if !r.Met {
			row.Tone, row.Cells[0] = Bad, TableCell{Text: "missed", Tone: Bad}
		}
		if r.Value != 0 || r.Met {
			row.Cells[3] = TableCell{Text: v.measured(r)}
		}
		t.Rows = append(t.Rows, row)
	}
	s.Lead = fmt.Sprintf("%d of %d met.", len(v.Thresholds)-missed(v), len(v.Thresholds))
	s.Blocks = []Block{t}
	return s
}

// measured prints a threshold's value in the unit of its metric; the metric is the first word of a
// requirement where the document does not name it.
func (v *view) measured(r comparison.Threshold) string {
	metric := r.Metric
	if metric == "" {
		if metric, _, _ = strings.Cut(r.Requirement, " "); metric == "goodput" {
			metric = goodput
		}
	}
	return v.text(metric, r.Value)
}

// label is a cell's label, or the factors where there is no such cell.
func (v *view) label(f map[string]string) string {
	if len(f) == 0 {
		return "–"
	}
	for i := range v.Cells {
		if c := &v.Cells[i]; c.Factors.Key() == record.Factors(f).Key() {
			return c.Label
		}
	}
	return v.setWords(f, v.sorted(f))
}

// comparisonSection: what does a setting cost or gain?
func comparisonSection(v *view) Section {
	s := Section{ID: "comparisons", Title: "What does it cost?"}
	if len(v.Comparisons) == 0 {
		return s
	}
	s.Lead = "Each ratio is of one cell to another, on blocks that were run close to each other in time."
	t := &Table{ID: "comparison-table", Folded: true, Caption: "The numbers of this chart", Columns: []Column{
		{Head: "Cell"}, {Head: "Against"}, {Head: "Metric"}, {Head: "Ratio", Numeric: true},
		{Head: "Interval", Numeric: true}, {Head: "n", Numeric: true}, {Head: "Verdict"}, {Head: "Test"}}}
	f := forest{Label: "Ratios of goodput or packet rate with their intervals"}
	for _, k := range v.Comparisons {
		t.Rows = append(t.Rows, comparisonRow(v, k))
		if k.Metric == goodput || k.Metric == packetRate {
			f.Rows = append(f.Rows, forestLine(v, k))
		}
	}
	if len(f.Rows) == 0 {
		t.Folded = false
		s.Blocks = []Block{*t}
		return s
	}
	s.Blocks = []Block{Figure{ID: "ratios", Title: "Rate against a named other cell", Draw: f, Table: t,
		Caption: "Point: median of the paired ratios. Whisker: " + comparisonIntervals(v) + "."}}
	return s
}

func comparisonIntervals(v *view) string {
	var words []string
	seen := map[string]bool{}
	for _, k := range v.Comparisons {
		w := intervalName(statistics.Value{Interval: k.Interval, Level: k.Level}) +
			fmt.Sprintf(" of n = %d pairs", k.N)
		if !seen[w] {
			seen[w] = true
			words = append(words, w)
		}
	}
	return strings.Join(words, "; ")
}

func forestLine(v *view, k comparison.Comparison) forestRow {
	r := forestRow{Name: v.label(k.Factors), Sub: k.Name, Text: unit.Ratio(k.Ratio), Ratio: k.Ratio,
		Low: k.Low, High: k.High, Whisker: k.Interval != statistics.IntervalSingle && k.High > k.Low,
		Title: v.label(k.Factors) + " " + k.Name + ": " + unit.Ratio(k.Ratio) + " — " + k.Verdict}
	if r.Whisker {
		r.Text += " (" + ratioRange(k.Low, k.High) + ")"
	}
	return r
}

// ratioRange prints the ends of a ratio's interval alike: as per cent, or from twice on as times.
func ratioRange(low, high float64) string {
	if high < 2 {
		return unit.Significant(low*100, 3) + "–" + unit.Percent(high)
	}
	return unit.Ratio(low) + "–" + unit.Ratio(high)
}

func comparisonRow(v *view, k comparison.Comparison) TableRow {
	row := TableRow{Cells: []TableCell{{Text: v.label(k.Factors), Sub: k.Name}, {Text: v.label(k.Against)},
		{Text: metrics.Label(k.Metric)}, {Text: unit.Ratio(k.Ratio)}, {Text: "–", Tone: Quiet},
		{Text: fmt.Sprint(k.N)}, {Text: k.Verdict}, {Text: k.Test}}}
	if k.High > k.Low {
		row.Cells[4] = TableCell{Text: ratioRange(k.Low, k.High),
			Sub: intervalName(statistics.Value{Interval: k.Interval, Level: k.Level})}
	}
	if k.PValue > 0 {
		row.Cells[7].Sub = "p = " + unit.Significant(k.PValue, 2)
	}
	for _, c := range k.Confounders {
		row.Notes = append(row.Notes, Item{Kind: "confounded", Text: c, Tone: Doubt})
	}
	return row
}

// comparisonLines say each comparison of rates in words, and of the others those with something to tell;
// the page has them all.
func comparisonLines(v *view) []string {
	var out []string
	var rest []string
	for _, k := range v.Comparisons {
		if strings.HasPrefix(k.Name, "of the plan's baseline") && plainVerdict(k.Verdict) {
			continue // differs in more than one factor: for the page, where there is room
		}
		if k.Metric != goodput && k.Metric != packetRate && len(k.Confounders) == 0 &&
			plainVerdict(k.Verdict) {
			if !slices.Contains(rest, k.Metric) {
				rest = append(rest, k.Metric)
			}
			continue
		}
		s := v.label(k.Factors) + ": " + metrics.Label(k.Metric) + " " + unit.Ratio(k.Ratio)
		if k.High > k.Low {
			s += " (" + intervalName(statistics.Value{Interval: k.Interval, Level: k.Level}) + " " +
				ratioRange(k.Low, k.High) + ", n = " + fmt.Sprint(k.N) + ")"
		}
		s += " " + k.Name + "; " + k.Verdict
		if len(k.Confounders) > 0 {
			s += ": " + strings.Join(k.Confounders, ", ")
		}
		out = append(out, s)
	}
	if len(rest) > 0 {
		for i, m := range rest {
			rest[i] = metrics.Label(m)
		}
		out = append(out, "no clear difference in "+strings.Join(rest, ", ")+
			": the report has these comparisons")
	}
	return out
}

// plainVerdict says that a comparison found no difference.
func plainVerdict(verdict string) bool {
	return strings.HasPrefix(verdict, "cannot tell") || strings.HasPrefix(verdict, "same")
}

// findingSection: what else did the run show?
func findingSection(v *view) Section {
	s := Section{ID: "findings", Title: "Findings"}
	t := Table{ID: "finding-table", Columns: []Column{{Head: "Cell"}, {Head: "Finding"}, {Head: "Evidence"}}}
	for i := range v.Cells {
		c := &v.Cells[i]
		for _, f := range c.Findings {
			t.Rows = append(t.Rows, TableRow{Cells: []TableCell{{Text: c.Label, Long: c.Factors.Key()},
				{Text: f.Text, Sub: f.Kind}, {Text: strings.Join(evidenceWords(f), "; ")}}})
		}
	}
	if len(t.Rows) > 0 {
		s.Blocks = []Block{t}
	}
	return s
}

func evidenceWords(f evidence.Finding) []string {
	if f.Confidence > 0 {
		return append([]string{"confidence " + unit.Percent(f.Confidence)}, f.Words...)
	}
	return f.Words
}

// findingItems are the same, a line each.
func findingItems(v *view) []Item {
	var out []Item
	for i := range v.Cells {
		for _, f := range v.Cells[i].Findings {
			out = append(out, Item{Kind: f.Kind, Text: v.Cells[i].Label + ": " + f.Text,
				Evidence: evidenceWords(f)})
		}
	}
	return out
}

// skippedSection: what was not measured, and why?
func skippedSection(v *view) Section {
	s := Section{ID: "skipped", Title: "Not measured"}
	if len(v.Skipped) == 0 && len(v.Run.Cuts) == 0 {
		return s
	}
	if len(v.Skipped) > 0 {
		t := Table{ID: "skipped-table", Columns: []Column{{Head: "Cell"}, {Head: "Reason"}}}
		for _, k := range v.Skipped {
			t.Rows = append(t.Rows, TableRow{Cells: []TableCell{
				{Text: v.skippedWords(k.Factors), Long: k.Factors.Key()}, {Text: k.Reason}}})
		}
		s.Blocks = append(s.Blocks, t)
	}
	if len(v.Run.Cuts) > 0 {
		l := List{Title: "Cut to fit the time budget"}
		for _, c := range v.Run.Cuts {
			l.Items = append(l.Items, Item{Text: c})
		}
		s.Blocks = append(s.Blocks, l)
	}
	return s
}
