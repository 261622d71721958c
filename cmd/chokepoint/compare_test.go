package main

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/comparison"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/report"
)

// What a search found is shown of every cell, as any rate is.
func TestCompareShowsRates(t *testing.T) {
	for metric, want := range map[string]int{metrics.Goodput: 2, metrics.ThroughputNDR: 2,
		metrics.ConnectionsPDR: 2, metrics.Retransmits: 1} {
		c := &analysis.RunComparison{Comparisons: []comparison.Comparison{{Metric: metric, Verdict: "same"}}}
		rows := report.ComparisonRows(c, nil)
		if len(rows) != want {
			t.Errorf("%s: %d rows, want %d", metric, len(rows), want)
		}
	}
}

// TestCompareSaysWhatItIs: ratios are in one notation, runs of different numbers are both counted, and a cell
// that only one run has is neither better nor worse.
func TestCompareSaysWhatItIs(t *testing.T) {
	f := record.Factors{"tunnel": "none"}
	gone := record.Factors{"tunnel": "wireguard"}
	c := &analysis.RunComparison{
		Comparisons: []comparison.Comparison{{
			Metric:  metrics.Goodput,
			Factors: f,
			Ratio:   .5,
			Spread:  statistics.Spread{Low: .45, High: 12, N: 6, Interval: statistics.IntervalOrder},
			RunsA:   8,
			RunsB:   6,
			Verdict: statistics.Different,
		}},
		OnlyA: []record.Factors{gone},
	}
	labels := map[string]string{f.Key(): "no tunnel", gone.Key(): "WireGuard"}
	skipped := &analysis.Document{Skipped: []record.Skipped{{Factors: gone, Reason: "no module"}}}
	text := comparisonText(c, labels, 0, &analysis.Document{}, skipped)
	for _, want := range []string{"×0.500  ×0.450 to ×12.0  A 8, B 6", "Hodges–Lehmann",
		"only in A: WireGuard; the other run skipped it: no module"} {
		if strings.Count(text, want) != 1 {
			t.Errorf("want %q once in\n%s", want, text)
		}
	}

	c.Comparisons[0].RunsA, c.Comparisons[0].RunsB = 0, 0 // of two versions, on paired blocks
	text = comparisonText(c, labels, 0)
	if !strings.Contains(text, "B ÷ A is the median of the ratios within blocks.") {
		t.Errorf("of two versions:\n%s", text)
	}
}

// TestCompareFits: with labels of any length, the table is as wide as the terminal at most, and its rows
// differ by what their labels say.
func TestCompareFits(t *testing.T) {
	const long = "queue@router.wan tbf rate 100mbit burst 32k latency 50ms · wireguard · TCP · "
	c := &analysis.RunComparison{}
	labels := map[string]string{}
	for _, words := range []string{"1 stream · up", "4 streams · up", "4 streams · down"} {
		f := record.Factors{"of": words}
		labels[f.Key()] = long + words
		c.Comparisons = append(c.Comparisons, comparison.Comparison{
			Metric: metrics.Goodput, Factors: f, A: new(935e6), B: new(467.5e6), Ratio: .5,
			Spread: statistics.Spread{Low: .45, High: .55, N: 3, Interval: statistics.IntervalRange},
			GradeA: "valid", GradeB: "suspect", Verdict: "cannot tell (n < 6)", Why: "the data exclude ×1",
		})
	}

	for _, width := range []int{40, 80, 100, 400} {
		text := comparisonTable(report.ComparisonRows(c, labels), width)
		for line := range strings.Lines(text) {
			if n := utf8.RuneCountInString(strings.TrimRight(line, " \n")); n > width {
				t.Errorf("%d columns in a terminal of %d: %s", n, width, line)
			}
		}

		words := strings.Join(strings.Fields(text), " ")
		for _, want := range []string{"4 streams · down", "×0.450 to ×0.550", "935 Mbit/s",
			"the data exclude ×1"} {
			if !strings.Contains(words, want) {
				t.Errorf("%d columns: %q is missing in\n%s", width, want, text)
			}
		}

		if columns := strings.Contains(text, "METRIC"); columns != (width >= 80) {
			t.Errorf("%d columns: in columns: %v", width, columns)
		}

		if n := strings.Count(words, "queue@router.wan"); width < 400 && n != 1 {
			t.Errorf("%d columns: what all labels share stands there %d times in\n%s", width, n, text)
		}
	}
}
