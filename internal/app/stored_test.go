package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/comparison"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/labtest"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
)

func TestOutcome(t *testing.T) {
	cell := record.Factors{"tunnel": "none"}
	failed := analysis.TrialView{Row: "b1-r01", Grade: evidence.GradeFailed}
	again := analysis.TrialView{Row: "b1-r01", Grade: evidence.GradeValid}
	missed := comparison.Threshold{Requirement: "goodput >= 1G", Factors: cell, Reason: "the cell failed"}
	met := comparison.Threshold{Requirement: "loss <= 1 %", Met: true}
	interrupted := analysis.Document{}
	interrupted.Run.Status = record.RunInterrupted
	unreached := analysis.Document{
		Trials: []analysis.TrialView{again},
		Thresholds: []comparison.Threshold{{
			Requirement: "goodput >= 1G",
			Factors:     cell,
			Reason:      "the cell was not reached",
			Validity:    evidence.GradeNotReached,
		}},
	}
	ended := unreached
	ended.Run.Status = record.RunDone
	unreached.Run.Status = record.RunInterrupted
	tests := []struct {
		name string
		doc  analysis.Document
		kind error
		text string
	}{
		{"all well", analysis.Document{
			Trials:     []analysis.TrialView{again},
			Thresholds: []comparison.Threshold{met},
		}, nil, ""},
		{"failed", analysis.Document{Trials: []analysis.TrialView{failed}}, ErrFailed,
			"1 of 1 trial failed and has no number"},
		{"failed, then measured", analysis.Document{Trials: []analysis.TrialView{failed, again}}, nil, ""},
		{"missed", analysis.Document{
			Trials:     []analysis.TrialView{again},
			Thresholds: []comparison.Threshold{met, missed},
		}, ErrThreshold,
			"goodput >= 1G (the cell failed)"},
		{"missed by a value", analysis.Document{
			Trials: []analysis.TrialView{again},
			Thresholds: []comparison.Threshold{{
				Requirement: "goodput >= 1G",
				Factors:     cell,
				Metric:      "goodput_bps",
				Value:       940e6,
			}},
		}, ErrThreshold, "goodput >= 1G (got 940 Mbit/s)"},
		{"missed in a skipped cell", analysis.Document{
			Trials: []analysis.TrialView{again},
			Thresholds: []comparison.Threshold{{
				Requirement: "goodput >= 1G",
				Factors:     cell,
				Reason:      "skipped: no module",
			}},
			Skipped: []record.Skipped{{ID: "40f24fe7d9", Label: "no tunnel", Factors: cell}},
		}, ErrThreshold, "goodput >= 1G in no tunnel, cell 40f24fe7d9 (skipped: no module)"},
		{"not reached", unreached, nil, ""},
		{"not reached in a run that ended", ended, ErrThreshold, "goodput >= 1G (the cell was not reached)"},
		{"both", analysis.Document{
			Trials:     []analysis.TrialView{failed},
			Thresholds: []comparison.Threshold{missed},
		}, ErrThreshold,
			"1 of 1 trial failed and has no number"},
		{"nothing measured", analysis.Document{
			Trials: []analysis.TrialView{{
				Row:        "b1-r01",
				Assignment: record.Assignment{Kind: record.RowVerify},
			}},
			Skipped: []record.Skipped{{Reason: "no path over IPv4"}, {Reason: "no cake"},
				{Reason: "no path over IPv4"}},
		}, ErrFailed,
			"nothing was measured: 3 cells skipped; 2: no path over IPv4; 1: no cake"},
		{"interrupted before anything was measured", interrupted, nil, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := outcome(&tt.doc)
			if !errors.Is(err, tt.kind) {
				t.Errorf("got %v, want %v", err, tt.kind)
			}

			if err != nil && !strings.Contains(err.Error(), tt.text) {
				t.Errorf("error: got %q, want one with %q", err, tt.text)
			}
		})
	}
}

func TestOutcomeOfStoredRuns(t *testing.T) {
	d := Dirs{Data: filepath.Join(t.TempDir(), "chokepoint")}
	for name, want := range map[string]error{"good": nil, "failed": ErrFailed, "demanded": ErrThreshold} {
		t.Run(name, func(t *testing.T) {
			ctx := context.Background()
			if err := labtest.WriteSample(ctx, d.StoreFile(), name); err != nil {
				t.Fatal(err)
			}

			doc, err := d.Document(ctx, labtest.Samples[name].ID)
			if err != nil {
				t.Fatalf("Document: got %v, want nil", err)
			}

			got := outcome(doc)
			if !errors.Is(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}

// TestListOfThousandKilledRuns: what list reads takes as long as they are many, and not as their square.
func TestListOfThousandKilledRuns(t *testing.T) {
	d := Dirs{Data: filepath.Join(t.TempDir(), "chokepoint"), State: t.TempDir()}
	st, err := store.Open(t.Context(), d.StoreFile())
	if err != nil {
		t.Fatal(err)
	}

	if err := os.MkdirAll(d.Journals(), 0o700); err != nil {
		t.Fatal(err)
	}

	run := labtest.Samples["killed"].Run()
	for i := range 1000 {
		run.ID = fmt.Sprintf("20260105-030405-%04x", i)
		journal := filepath.Join(d.Journals(), run.ID+".jsonl")
		err := errors.Join(st.CreateRun(t.Context(), run), os.WriteFile(journal, nil, 0o600))
		if err != nil {
			t.Fatal(err)
		}
	}

	if err := st.Close(); err != nil {
		t.Fatal(err)
	}

	var before, after syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &before)
	runs, err := d.Runs(t.Context())
	syscall.Getrusage(syscall.RUSAGE_SELF, &after)
	if err != nil || len(runs) != 1000 || runs[0].Status != record.RunKilled {
		t.Fatalf("got %d runs, %v, want 1,000 that were killed", len(runs), err)
	}

	took := time.Duration(after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano())
	t.Logf("1,000 killed runs: %v of CPU time", took)
	if took > time.Second {
		t.Errorf("1,000 killed runs: took %v of CPU time, want a second at most", took)
	}
}

// TestPair: of the runs of a plan that have results the latest two are compared, or a named one with the
// latest other one.
func TestPair(t *testing.T) {
	d := Dirs{Data: t.TempDir() + "/chokepoint", State: t.TempDir()}
	if _, _, err := d.Pair(t.Context(), ""); !errors.Is(err, store.ErrNone) {
		t.Errorf("without a store: got %v, want ErrNone", err)
	}

	var ids []string
	for _, name := range []string{"good", "slow", "failed", "killed"} {
		if err := labtest.WriteSample(t.Context(), d.StoreFile(), name); err != nil {
			t.Fatal(err)
		}

		ids = append(ids, labtest.Samples[name].ID)
	}

	st, err := store.Open(t.Context(), d.StoreFile())
	if err != nil {
		t.Fatal(err)
	}

	other := labtest.Samples["good"].Run()
	other.ID = "20260120-000000-0000"
	other.Started = other.Started.AddDate(0, 1, 0)
	other.Design.Name = "other"
	err = errors.Join(st.CreateRun(t.Context(), other), st.Close())
	if err != nil {
		t.Fatal(err)
	}

	for _, tc := range []struct{ name, older, newer string }{
		{"", ids[2], ids[3]}, // the other one has no trial
		{ids[3], ids[2], ids[3]}, {ids[0], ids[0], ids[3]}, {"latest~1", ids[2], ids[3]},
	} {
		older, newer, err := d.Pair(t.Context(), tc.name)
		if err != nil || older != tc.older || newer != tc.newer {
			t.Errorf("%q: got %s and %s, %v, want %s and %s", tc.name, older, newer, err, tc.older, tc.newer)
		}
	}

	for name, want := range map[string]string{other.ID: "is the only one of plan other",
		"nobody": "no such run"} {
		_, _, err := d.Pair(t.Context(), name)
		if !errors.Is(err, ErrUsage) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q in it", name, err, want)
		}
	}
}

// TestRename: a name that cannot be is a wrong request, and the run keeps the one that it has.
func TestRename(t *testing.T) {
	d := Dirs{Data: t.TempDir() + "/chokepoint", State: t.TempDir()}
	for _, name := range []string{"good", "slow"} {
		if err := labtest.WriteSample(t.Context(), d.StoreFile(), name); err != nil {
			t.Fatal(err)
		}
	}

	good := labtest.Samples["good"].ID
	id, err := d.Rename(t.Context(), "latest~1", "before")
	if err != nil || id != good {
		t.Errorf("got %s, %v, want %s", id, err, good)
	}

	for _, tc := range [][2]string{{"latest", "before"}, {"latest", "a b"}, {"latest", "latest"},
		{"nobody", "x"}} {
		_, err := d.Rename(t.Context(), tc[0], tc[1])
		if !errors.Is(err, ErrUsage) {
			t.Errorf("rename %s %q: got %v, want an ErrUsage", tc[0], tc[1], err)
		}
	}

	doc, err := d.Document(t.Context(), "before")
	if err != nil || doc.Run.ID != good || doc.Run.Name != "before" {
		t.Errorf("the document: %v, want that of %s, called before", err, good)
	}

	if _, err := d.Rename(t.Context(), "before", ""); err != nil {
		t.Error(err)
	}

	if _, err := d.Document(t.Context(), "before"); !errors.Is(err, ErrUsage) {
		t.Errorf("a name that is taken away: got %v, want an ErrUsage", err)
	}
}
