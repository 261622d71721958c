package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/report"
)

// TestPlantedFaults gives a real browser a real report, which must pass, and the same report with one fault
// each, which must not.
func TestPlantedFaults(t *testing.T) {
	program, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("skip: chromium is not installed")
	}
	f := record.Factors{"tunnel": "none", "streams": "1"}
	d := &analysis.Document{Format: record.Format, Run: analysis.RunHead{ID: "r1", Plan: "quick",
		Status: record.RunDone},
		Cells: []analysis.Cell{{Factors: f, Label: "no tunnel, 1 stream", Grade: evidence.GradeValid, Runs: 3,
			Metrics: map[string]statistics.Value{"goodput_bps": {Median: 5.812e9, Low: 5.5e9, High: 6.1e9,
				N:      3,
				Values: []float64{5.5e9, 5.812e9, 6.1e9}, Interval: statistics.IntervalRange}}}}}
	page, err := report.HTML(d)
	if err != nil {
		t.Fatal(err)
	}
	document, err := report.JSON(d)
	if err != nil {
		t.Fatal(err)
	}
	if faults := open(t, program, string(page), document); faults != nil {
		t.Errorf("faults of a good report: %v", faults)
	}
	bad := string(page)
	for _, r := range [][2]string{
		{">5.81 Gbit/s<", ">5.82 Gbit/s<"},
		{"(prefers-color-scheme:dark)", "(prefers-color-scheme:none)"},
		{"</main>", `<p style="width:2000px">wide</p><img src="missing.png"/></main>`},
		{"img-src data:", "img-src *"}, // the page's own policy would stop the request
	} {
		next := strings.Replace(bad, r[0], r[1], 1)
		if next == bad {
			t.Fatalf("fault %q was not planted", r[1])
		}
		bad = next
	}
	faults := open(t, program, bad, document)
	for _, want := range []string{`390-light: tunnel=none|goodput_bps`, `reads "5.82 Gbit/s"`,
		"390-dark: the ground is not dark",
		"390-light: the page is 2", "px wide in a window of 390", "1280-dark: sticks out: P.",
		"the page fetched file://"} {
		want = strings.Replace(want, "tunnel=none|", f.Key()+"|", 1)
		if faults == nil || !strings.Contains(faults.Error(), want) {
			t.Errorf("faults %v, want %q among them", faults, want)
		}
	}
}

// open runs the whole check on a page and demands its four pictures.
func open(t *testing.T, program, page string, document []byte) error {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "r.html"), page)
	write(t, filepath.Join(dir, "r.json"), string(document))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	faults := run(ctx, program, filepath.Join(dir, "r.html"), filepath.Join(dir, "shots"),
		filepath.Join(dir, "r.json"))
	shots, err := filepath.Glob(filepath.Join(dir, "shots", "*.png"))
	if err != nil || len(shots) != 4 {
		t.Errorf("%d pictures, %v, want 4", len(shots), err)
	}
	return faults
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
