package report

import (
	"fmt"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/comparison"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

func missed(v *view) int {
	n, _ := v.ThresholdCounts()
	return n
}

// missedSection shows the requirements at the top of the page if a requirement is missed.
func missedSection(v *view, s *Section) {
	if missed(v) > 0 {
		thresholdSection(v, s)
	}
}

// metSection shows the requirements further down if no requirement is missed.
func metSection(v *view, s *Section) {
	if missed(v) == 0 && len(v.Thresholds) > 0 {
		thresholdSection(v, s)
	}
}

// thresholdSection shows whether the run met the requirements of the plan.
func thresholdSection(v *view, s *Section) {
	missed, unchecked := v.ThresholdCounts()
	s.Lead = fmt.Sprintf("%d of %d met", len(v.Thresholds)-missed-unchecked, len(v.Thresholds))
	if unchecked > 0 {
		s.Lead += fmt.Sprintf("; not checked: %d", unchecked)
	}

	s.Lead += "."
	s.add(thresholdTable(v))
}

func thresholdTable(v *view) Table {
	t := Table{
		ID:    "threshold-table",
		Cards: true,
		Columns: columns("Outcome", "Requirement", "Cell",
			"#Measured", "Reason"),
	}
	for _, r := range v.Thresholds {
		row := t.row(TableCell{Text: "met", Tone: Good}, r.Requirement,
			cellName(v.label(r.Factors), r.Factors), none, r.Reason)
		switch {
		case v.Unchecked(r):
			row.Cells[0] = TableCell{Text: "not checked", Tone: Quiet}
		case !r.Met:
			row.Tone, row.Cells[0] = Bad, TableCell{Text: "missed", Tone: Bad}
		}

		// The grade is already the outcome.
		if r.Metric != record.Validity && (r.Value != 0 || r.Met) {
			row.Cells[3] = TableCell{Text: v.text(r.Metric, r.Value)}
		}
	}
	return t
}

// thresholdItems returns a line for each row of thresholdTable.
func thresholdItems(v *view) (out []Item) {
	for _, r := range thresholdTable(v).Rows {
		outcome := r.Cells[0]
		at := func(i int) string { return strings.TrimPrefix(r.Cells[i].Text, none.Text) }
		out = append(out, items(outcome.Text, outcome.Tone, at(1)+around(" in ", at(2), "")+
			around(", measured ", at(3), "")+around(": ", at(4), ""))...)
	}
	return out
}

// label returns a cell's label, or its factors if the run does not contain the cell.
func (v *view) label(f record.Factors) string {
	if len(f) == 0 {
		return "–"
	}

	c := v.cell[f.Key()]
	if c != nil {
		return c.Label
	}

	return v.setWords(f, v.sorted(f))
}

// comparisonSection shows what a setting costs or gains.
func comparisonSection(v *view, s *Section) {
	if len(v.Comparisons) == 0 {
		return
	}

	s.Lead = "Each ratio is of one cell to another, on blocks that were run close to each other in time."
	t := &Table{
		ID:      "comparison-table",
		Folded:  true,
		Caption: "The numbers of this chart",
		Columns: columns("Cell", "Against", "Metric", "#Ratio", "#Interval", "#n", "Verdict", "Test"),
	}
	f := forest{
		Label: "Ratios of goodput or packet rate with their intervals",
		Axis:  "median of the ratios of paired blocks; ×1 = the same",
	}
	var intervals []string
	var cells []*analysis.Cell
	for _, k := range v.Comparisons {
		row := t.row(TableCell{Text: v.label(k.Factors), Sub: k.Name}, v.label(k.Against),
			metrics.Label(k.Metric), unit.Times(k.Ratio), none, k.N, TableCell{Text: k.Verdict, Sub: k.Why},
			TableCell{Text: k.Test, Sub: pWords(k.PValue)})
		row.Notes = items("confounded", Doubt, k.Confounders...)
		if k.High > k.Low {
			row.Cells[4] = TableCell{Text: ratioRange(k), Sub: ratioInterval(k)}
		}

		if k.Metric == goodput || k.Metric == packetRate {
			f.Rows = append(f.Rows, forestLine(v, k))
			for _, of := range []record.Factors{k.Factors, k.Against} {
				c := v.cell[of.Key()]
				if c != nil {
					index(&cells, c)
				}
			}
		}

		intervals = once(intervals, fmt.Sprintf("%s of n = %d pairs", ratioInterval(k), k.N))
	}

	if len(f.Rows) == 0 {
		t.Folded = false
		s.add(*t)
		return
	}

	whiskers := strings.Join(intervals, "; ")
	s.add(Figure{
		ID:      "ratios",
		Title:   "Rate against a named other cell",
		Draw:    f,
		Table:   t,
		Cells:   cells,
		Whisker: whiskers,
		Legend:  doubtful(cells, "hollow c0"),
		Caption: "Point: median of the paired ratios." + whiskerWords(whiskers),
	})
}

func ratioInterval(k comparison.Comparison) string {
	return intervalName(statistics.Value{Spread: k.Spread})
}

func forestLine(v *view, k comparison.Comparison) forestRow {
	name := v.label(k.Factors)
	ratio := unit.Times(k.Ratio)
	r := forestRow{
		estimate: estimate{
			Class:   v.class(k.Factors),
			Text:    ratio,
			Doubt:   v.doubt(k.Factors) || v.doubt(k.Against),
			Median:  k.Ratio,
			Low:     k.Low,
			High:    k.High,
			Whisker: k.Interval != statistics.IntervalSingle && k.High > k.Low,
			Title:   name + " " + k.Name + ": " + ratio + " — " + k.Verdict,
		},
		Name: name,
		Sub:  k.Name,
	}
	if r.Whisker {
		r.Text += " (" + ratioRange(k) + ")"
	}

	return r
}

func ratioRange(k comparison.Comparison) string {
	return unit.Times(k.Low) + "–" + unit.Times(k.High)
}

// doubt reports whether the cell with these factors is suspect.
func (v *view) doubt(f record.Factors) bool {
	c := v.cell[f.Key()]
	return c != nil && suspect(c)
}

// pWords formats a p-value, or returns "" if there is none.
func pWords(p float64) string {
	if p <= 0 {
		return ""
	}
	return "p = " + unit.Significant(p, 2)
}

// comparisonBlocks returns a table with a row for each comparison of rates, and for each other comparison
// that found a difference. A line per verdict with the remaining comparisons follows. The page shows a row
// for each of them.
func comparisonBlocks(v *view) []Block {
	var verdicts, intervals, metric []string
	rest := map[string][]string{} // by verdict
	tested := false
	t := Table{
		ID:      "comparison-table",
		Columns: columns("Cell", "Metric", "#Ratio", "#Interval", "#n", "Verdict"),
	}
	t.Columns[4].Drop = 1
	for _, k := range v.Comparisons {
		plain := strings.HasPrefix(k.Verdict, statistics.CannotTell) ||
			strings.HasPrefix(k.Verdict, statistics.Same)
		if strings.HasPrefix(k.Name, "of the baseline") && plain {
			continue // too long, because the cells differ in several factors
		}

		if k.Metric != goodput && k.Metric != packetRate && len(k.Confounders) == 0 && plain {
			verdicts = once(verdicts, k.Verdict)
			rest[k.Verdict] = once(rest[k.Verdict], metrics.Label(k.Metric))
			continue
		}

		tested = tested || k.PValue > 0
		interval := none
		if k.High > k.Low {
			interval = TableCell{Text: ratioRange(k)}
			intervals = once(intervals, ratioInterval(k))
		}

		metric = once(metric, metrics.Label(k.Metric))
		row := t.row(TableCell{Text: v.label(k.Factors), Sub: k.Name},
			metrics.Label(k.Metric), unit.Times(k.Ratio), interval, k.N,
			TableCell{Text: k.Verdict, Sub: pWords(k.PValue)})
		row.Notes = items("confounded", Doubt, k.Confounders...)
	}

	var out []Block
	if len(t.Rows) > 0 {
		t.Caption = "Ratios are medians over n paired blocks; ×1 is the same"
		if len(metric) == 1 {
			t.delete(1)
			t.Caption = "Ratios of " + metric[0] + " are medians over n paired blocks; ×1 is the same"
		}

		t.Caption += around("; interval: ", strings.Join(intervals, "; "), "") + "."
		if tested {
			t.Caption += " p is corrected for all comparisons of the run."
		}

		out = append(out, t)
	}

	lines := each(verdicts, func(verdict string) string {
		return verdict + " in " + strings.Join(rest[verdict], ", ") + "; these ratios are not listed here"
	})
	if len(lines) > 0 {
		out = append(out, List{Items: items("", Plain, lines...)})
	}

	return out
}

// findingSection lists further findings of the run.
func findingSection(v *view, s *Section) {
	s.list("", findingItems(v))
}

// findingItems returns a line for each finding.
func findingItems(v *view) []Item {
	var out []Item
	for _, c := range v.all {
		for _, f := range c.Findings {
			item := Item{Kind: f.Kind, Text: c.Label + ": " + f.Text, Evidence: f.Words}
			if f.Confidence > 0 {
				item.Evidence = append([]string{"confidence " + unit.Percent(f.Confidence)}, f.Words...)
			}

			out = append(out, item)
		}
	}
	return out
}

// skippedSection shows what was not measured, and why.
func skippedSection(v *view, s *Section) {
	if len(v.Skipped) > 0 {
		t := Table{ID: "skipped-table", Cards: true, Columns: columns("Cell", "Reason")}
		for _, k := range v.Skipped {
			t.row(cellName(v.skippedWords(k.Factors), k.Factors), k.Reason)
		}

		s.add(t)
	}

	s.list("Cut to fit the time budget", items("", Plain, v.Run.Cuts...))
}

// skippedLines returns the content of skippedSection as lines.
func skippedLines(v *view) []string {
	cells := each(v.Skipped, func(k record.Skipped) string {
		return v.skippedWords(k.Factors) + ": " + k.Reason
	})
	return append(cells, each(v.Run.Cuts, func(text string) string {
		return "cut to fit the time budget: " + text
	})...)
}
