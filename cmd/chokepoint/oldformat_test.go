package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
)

// oldRun is the run in testdata/old-format-1.db, which a program of November 2026 measured and stored: three
// cells, of which two differ in udp_gso, a factor that had another name then.
const oldRun = "20261123-224834-bfb7"

// TestOldRun reads a run that an earlier version has stored: it gives the numbers that it gave then, under
// today's names, and compares with the same run as this version stores it.
func TestOldRun(t *testing.T) {
	data, err := os.ReadFile("testdata/old-format-1.db")
	if err != nil {
		t.Fatal(err)
	}
	d := app.Dirs{Data: filepath.Join(t.TempDir(), "data")}
	if err := os.Mkdir(d.Data, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(d.StoreFile(), data, 0o600); err != nil {
		t.Fatal(err)
	}
	run, trials, err := loadRun(t.Context(), d, oldRun)
	if err != nil {
		t.Fatal(err)
	}
	// As `show --json` of the version that stored it printed them, but for TCP's round trip, in which that
	// version included what came before the window.
	want := map[string]map[string]float64{
		"udp auto": {"goodput_bps": 5155134419.908512, "packet_rate_pps": 437766.17016886146,
			"delay_variation_p99_ns": 563266, "loss_ratio": 0},
		"udp off": {"goodput_bps": 3758347472.5454607, "packet_rate_pps": 319153.1481441457,
			"delay_variation_p99_ns": 461376, "loss_ratio": 0},
		"tcp ": {"goodput_bps": 2506230291.6405454, "retransmits": 2369.5, "rtt_tcp_ns": 1487500,
			"tcp_busy_ratio": 0.8449749812857916},
	}
	doc := analysis.Derive(run, trials)
	if len(doc.Cells) != len(want) {
		t.Errorf("cells: got %d, want %d", len(doc.Cells), len(want))
	}
	for _, c := range doc.Cells {
		cell := c.Factors["protocol"] + " " + c.Factors["udp_gso"]
		for metric, value := range want[cell] {
			if got := c.Metrics[metric].Median; got != value {
				t.Errorf("%q: %s: got %v, want %v", cell, metric, got, value)
			}
		}
		delete(want, cell)
	}
	if len(want) > 0 {
		t.Errorf("cells: got none of %v", want)
	}

	// The same run, stored by this version.
	st, err := store.Open(t.Context(), d.StoreFile())
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	run.ID = "20261124-000000-0000"
	if err := st.CreateRun(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	for _, trial := range trials {
		trial.Run = run.ID
		if err := st.AppendTrial(t.Context(), trial); err != nil {
			t.Fatal(err)
		}
	}
	again, err := d.Document(t.Context(), run.ID)
	if err != nil {
		t.Fatal(err)
	}
	c := analysis.CompareRuns(doc, again)
	if len(c.OnlyA)+len(c.OnlyB) > 0 || len(c.Comparisons) == 0 {
		t.Errorf("comparison: got %d, only in the old run %v, only in the new one %v; want each cell in both",
			len(c.Comparisons), c.OnlyA, c.OnlyB)
	}
	for _, x := range c.Comparisons {
		if !x.Difference && x.Ratio != 1 && x.Ratio != 0 {
			t.Errorf("%s of %s: got a ratio of %v, want 1", x.Metric, x.Factors.Key(), x.Ratio)
		}
	}
	if text := comparisonText(c, labelsOf(doc, again)); !strings.Contains(text, "udp_gso auto") {
		t.Errorf("comparison: got no present name in\n%s", text)
	}
}
