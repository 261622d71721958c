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

// versionBlocks returns blocks in which each later version has a cell at a ratio of the first one, and
// another at the same rate.
func versionBlocks(n int, ratios ...float64) (out []VersionBlock) {
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
		b := VersionBlock{Block: block, Runs: []*Document{of(block, "6.1", 1)}}
		for i, ratio := range ratios {
			b.Runs = append(b.Runs, of(block, []string{"6.12", "6.13"}[i], ratio))
		}

		if block == 2 {
			b.Runs[1].Environment[0].Facts["sysctl"] = "0" // as it was found in this block alone
		}

		out = append(out, b)
	}
	return out
}

// TestCompareVersions: cells are matched whatever their firmware, a change is in one sentence with its
// interval, and its candidate causes are what differs in every block.
func TestCompareVersions(t *testing.T) {
	if !ChangesSeen(versionBlocks(6, .9), 1) || ChangesSeen(versionBlocks(6, 1), 1) {
		t.Error("only a change that was seen is repeated")
	}

	c := CompareVersions([]string{"6.1", "6.12"}, versionBlocks(12, .88))[0]
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
		blocks[i].Runs[1].Cells = blocks[i].Runs[1].Cells[:1]
		blocks[i].Runs[1].Skipped = []record.Skipped{{
			Factors: blocks[i].Runs[0].Cells[1].Factors,
			Reason:  "no module",
		}}
	}

	c = CompareVersions([]string{"6.1", "6.12"}, blocks)[0]
	want = "the new version has no number in 6 of 6 blocks: no module"
	if len(c.Regressions) != 1 || c.Regressions[0].Text != want {
		t.Errorf("a cell that the new version lacks: got %+v, want %q", c.Regressions, want)
	}

	c = CompareVersions([]string{"6.1", "6.12"}, versionBlocks(6, 1.2))[0]
	if len(c.Regressions) != 0 || !strings.Contains(c.Comparisons[0].Why, "was not repeated") {
		t.Errorf("got %+v, %+v, want no verdict without a repeat", c.Regressions, c.Comparisons)
	}
}

// TestCompareSeveralVersions: each later version is compared with the first, all as one family, and blocks
// that lack a version count for the others.
func TestCompareSeveralVersions(t *testing.T) {
	blocks := versionBlocks(12, 1, .88)
	for i := 6; i < 12; i++ {
		blocks[i].Runs[1] = nil // nothing was to be repeated
	}

	if ChangesSeen(blocks[:6], 1) || !ChangesSeen(blocks[:6], 2) {
		t.Error("want a change of the third version alone")
	}

	got := CompareVersions([]string{"6.1", "6.12", "6.13"}, blocks)
	if len(got) != 2 || len(got[0].Regressions) != 0 || len(got[1].Regressions) != 1 ||
		got[0].B.Name != "6.12" || got[1].B.Name != "6.13" {
		t.Fatalf("got %+v, want a regression of 6.13 alone", got)
	}

	if n := got[0].Comparisons[0].N; n != 6 {
		t.Errorf("blocks with both versions: got %d, want 6", n)
	}

	if test := got[1].Comparisons[0].Test; !strings.Contains(test, "corrected for 4 comparisons") {
		t.Errorf("got %q, want all comparisons of both versions to be one family", test)
	}

	for i := range blocks {
		blocks[i].Runs[1] = nil
	}

	if got := CompareVersions([]string{"6.1", "6.12", "6.13"}, blocks); got[0] != nil || got[1] == nil {
		t.Errorf("got %+v, want no comparison of a version that was not measured", got)
	}
}
