package main

import (
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/comparison"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// What a search found is shown of every cell, as any rate is.
func TestCompareShowsRates(t *testing.T) {
	for metric, want := range map[string]int{metrics.Goodput: 2, metrics.ThroughputNDR: 2,
		metrics.ConnectionsPDR: 2, metrics.Retransmits: 1} {
		c := &analysis.RunComparison{Comparisons: []comparison.Comparison{{Metric: metric, Verdict: "same"}}}
		rows := comparisonRows(c, nil)
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
	text := comparisonText(c, labels, &analysis.Document{}, skipped)
	for _, want := range []string{"×0.500  ×0.450 to ×12.0  A 8, B 6", "Hodges–Lehmann",
		"only in A: WireGuard; the other run skipped it: no module"} {
		if strings.Count(text, want) != 1 {
			t.Errorf("want %q once in\n%s", want, text)
		}
	}

	c.Comparisons[0].RunsA, c.Comparisons[0].RunsB = 0, 0 // of two versions, on paired blocks
	text = comparisonText(c, labels)
	if !strings.Contains(text, "B ÷ A is the median of the ratios within blocks.") {
		t.Errorf("of two versions:\n%s", text)
	}
}
