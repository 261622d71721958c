package main

import (
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/comparison"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
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
