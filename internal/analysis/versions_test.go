package analysis

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/quick"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// versionBlocks returns blocks in which the new version has a cell at a ratio of the old one, and another at
// the same rate.
func versionBlocks(n int, ratio float64) (out []VersionBlock) {
	of := func(block int, kernel string, ratio float64) *Document {
		d := &Document{Metrics: []record.Metric{{Name: metrics.Goodput, Better: record.Higher}}}
		d.Environment = []record.Environment{{
			Node: "router",
			Facts: map[string]string{"kernel": kernel, "sysctl": "1", "boot_id": fmt.Sprint(kernel, block),
				"rules": fmt.Sprint(block % 2)},
		}}
		for i, r := range []float64{ratio, 1} {
			d.Cells = append(d.Cells, Cell{Runs: 1, Cell: metrics.Cell{
				Factors: quick.Factors("streams", fmt.Sprint(i+1), "firmware", kernel),
				Label:   fmt.Sprintf("%d streams", i+1),
				Grade:   evidence.GradeValid,
				Metrics: map[string]statistics.Value{
					metrics.Goodput: {Median: 1e9 * r * (1 + .001*float64(block%3))},
				},
			}})
		}
		return d
	}
	for block := 1; block <= n; block++ {
		b := VersionBlock{Block: block, Old: of(block, "6.1", 1), New: of(block, "6.12", ratio)}
		if block == 2 {
			b.New.Environment[0].Facts["sysctl"] = "0" // as it was found in this block alone
		}

		out = append(out, b)
	}
	return out
}

// TestCompareVersions: cells are matched whatever their firmware, a change is in one sentence with its
// interval, and its candidate causes are what differs in every block.
func TestCompareVersions(t *testing.T) {
	if !ChangesSeen(versionBlocks(6, .9)) || ChangesSeen(versionBlocks(6, 1)) {
		t.Error("only a change that was seen is repeated")
	}

	c := CompareVersions("6.1", "6.12", versionBlocks(12, .88))
	want := "6.12 against 6.1, 12 blocks: of 2 comparisons it is worse in 1 (1 streams: goodput −12.0 %, " +
		"−12.0 % to −12.0 %), better in none, the same within ±2 % in 1; 0 cannot tell."
	if c.Summary[0] != want {
		t.Errorf("got  %s\nwant %s", c.Summary[0], want)
	}

	if len(c.Regressions) != 1 || c.A.Name != "6.1" || c.B.Name != "6.12" ||
		c.Format != comparisonFormat {
		t.Errorf("got %+v of %s and %s, want one regression of 6.1 and 6.12", c.Regressions, c.A.Name,
			c.B.Name)
	}

	if len(c.Changes) != 1 || c.Changes[0].Name != "kernel on router" {
		t.Errorf("changes: got %+v, want the kernel alone", c.Changes)
	}

	if len(c.Summary) != 2 || !strings.Contains(c.Summary[1], "kernel on router: 6.1 → 6.12") {
		t.Errorf("got %q, want the kernel as a candidate cause", c.Summary)
	}

	blocks := versionBlocks(6, 1)
	for i := range blocks {
		blocks[i].New.Cells = blocks[i].New.Cells[:1]
		blocks[i].New.Skipped = []record.Skipped{{
			Factors: blocks[i].Old.Cells[1].Factors,
			Reason:  "no module",
		}}
	}

	c = CompareVersions("6.1", "6.12", blocks)
	want = "the new version has no number in 6 of 6 blocks: no module"
	if len(c.Regressions) != 1 || c.Regressions[0].Text != want {
		t.Errorf("a cell that the new version lacks: got %+v, want %q", c.Regressions, want)
	}

	c = CompareVersions("6.1", "6.12", versionBlocks(6, 1.2))
	if len(c.Regressions) != 0 || !strings.Contains(c.Comparisons[0].Why, "was not repeated") {
		t.Errorf("got %+v, %+v, want no verdict without a repeat", c.Regressions, c.Comparisons)
	}
}
