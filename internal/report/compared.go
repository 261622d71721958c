package report

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/comparison"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// alwaysCompared lists the metrics whose ratio is shown for every cell. The ratios of other metrics are shown
// only where they differ.
var alwaysCompared = [...]string{metrics.Goodput, metrics.PacketRate, metrics.ThroughputNDR,
	metrics.ThroughputPDR, metrics.ThroughputDelay, metrics.ThroughputPaced, metrics.ConnectionsNDR,
	metrics.ConnectionsPDR, metrics.CipherRate, metrics.CipherOps, metrics.Number}

// CellLabels returns the labels of the cells of documents, by the key of their factors.
func CellLabels(docs ...*analysis.Document) map[string]string {
	labels := map[string]string{}
	for _, d := range docs {
		for _, c := range d.Cells {
			labels[c.Factors.Key()] = c.Label
		}
	}
	return labels
}

// ComparisonRows returns the headings and rows of a table that compares two runs. It has a row for each
// comparison of a main metric, and for each other comparison that found a difference. labels names the cells
// by key.
func ComparisonRows(c *analysis.RunComparison, labels map[string]string) [][]string {
	rows := [][]string{{"CELL", "METRIC", "A", "B", "B ÷ A", "INTERVAL", "RUNS", "VALIDITY", "VERDICT"}}
	for _, x := range c.Comparisons {
		if !slices.Contains(alwaysCompared[:], x.Metric) && x.Verdict != "different" &&
			x.Verdict != "confounded" {
			continue
		}

		metric := metrics.Label(x.Metric)
		format := unit.Times
		if x.Difference {
			metric += ", B − A"
			format = func(v float64) string { return metrics.Say(x.Metric, v) }
		}

		interval := format(x.Low) + " to " + format(x.High)
		if x.Interval == statistics.IntervalSingle {
			interval = "-"
		}

		side := func(v *float64) string {
			if v == nil {
				return "-"
			}
			return metrics.Say(x.Metric, *v)
		}
		validity := x.GradeA
		if x.GradeB != x.GradeA {
			validity += ", " + x.GradeB
		}

		verdict := x.Verdict
		if x.Why != "" {
			verdict += ": " + x.Why
		}

		runs := strconv.Itoa(x.N)
		if x.RunsA != x.RunsB {
			runs = fmt.Sprintf("A %d, B %d", x.RunsA, x.RunsB)
		}

		rows = append(rows, []string{labels[x.Factors.Key()], metric, side(x.A), side(x.B), format(x.Ratio),
			interval, runs, cmp.Or(validity, "-"), verdict})
	}
	return rows
}

// RatioWords explains the ratios of a comparison.
func RatioWords(c *analysis.RunComparison) string {
	if slices.ContainsFunc(c.Comparisons, func(x comparison.Comparison) bool { return x.RunsA > 0 }) {
		return "B ÷ A is the Hodges–Lehmann estimate: the median of all ratios of a run of B to a " +
			"run of A,\nwhich need not be the ratio of the medians."
	}
	return "B ÷ A is the median of the ratios within blocks."
}

// OtherSkipped returns the reason why the other run of a comparison skipped a cell, or "" if it did not.
func OtherSkipped(other *analysis.Document, f record.Factors) string {
	i := slices.IndexFunc(other.Skipped, func(s record.Skipped) bool { return s.Factors.Key() == f.Key() })
	if i < 0 {
		return ""
	}
	return "; the other run skipped it: " + other.Skipped[i].Reason
}

// ComparisonSections lays out the comparison of two runs. docs are the documents of the runs.
func ComparisonSections(c *analysis.RunComparison, docs [2]*analysis.Document) []Section {
	labels := CellLabels(docs[:]...)
	summary := Section{ID: "summary", Title: "Summary"}
	summary.add(Points{c.Summary})
	for _, d := range docs {
		summary.add(List{Items: items("", Doubt, ForeignWords(d)...)})
	}

	var worse []Item
	for _, r := range c.Regressions {
		item := Item{Text: labels[r.Factors.Key()] + ": " + r.Text, Tone: Bad}
		if r.Suspect {
			item.Kind, item.Tone = "suspect", Doubt
		}

		worse = append(worse, item)
	}

	summary.list("Worse in B", worse)
	all := []Section{summary}
	rows := ComparisonRows(c, labels)
	if len(rows) > 1 {
		t := Table{
			ID:      "comparison",
			Caption: RatioWords(c),
			Cards:   true,
			Columns: columns("Cell", "Metric", "#A", "#B", "#B ÷ A", "#Interval", "#Runs", "Validity",
				"Verdict"),
		}
		for _, r := range rows[1:] {
			t.row(each(r, func(text string) TableCell {
				if text == "-" {
					return none
				}
				return TableCell{Text: text}
			}))
		}

		all = append(all, Section{ID: "cells", Title: "Cells", Blocks: []Block{t}})
	}

	if len(c.Changes) > 0 {
		t := Table{ID: "changes", Cards: true, Columns: columns("What", "Kind", "A", "B", "Can explain it")}
		for _, x := range c.Changes {
			explains := none
			if x.Cause {
				explains = TableCell{Text: "yes"}
			}

			t.row(TableCell{Text: x.Name}, x.Kind, textCell(x.A), textCell(x.B), explains)
		}

		all = append(all, Section{ID: "changed", Title: "What else differs", Blocks: []Block{t}})
	}

	var alone []string
	for i, cells := range [2][]record.Factors{c.OnlyA, c.OnlyB} {
		for _, f := range cells {
			alone = append(alone, fmt.Sprintf("only in %c: %s%s", 'A'+i, labels[f.Key()],
				OtherSkipped(docs[1-i], f)))
		}
	}

	if len(alone) > 0 {
		all = append(all, Section{ID: "alone", Title: "Cells of one run", Blocks: []Block{Points{alone}}})
	}

	return all
}
