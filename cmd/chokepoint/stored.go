package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/comparison"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/journal"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
	"github.com/chokepoint-lab/chokepoint/internal/registry"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// readStore opens the runs for reading; store.ErrNone says that there is none.
func readStore(ctx context.Context, d dirs) (*store.Store, error) {
	if err := trusted(d.Data); err != nil {
		return nil, err
	}
	return store.OpenReadOnly(ctx, d.storeFile())
}

// storedRuns are all runs, the newest first; none where there is no store.
func storedRuns(ctx context.Context, d dirs) ([]store.Head, error) {
	st, err := readStore(ctx, d)
	if errors.Is(err, store.ErrNone) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	runs, err := st.Runs(ctx)
	return runs, errors.Join(err, st.Close())
}

// living are the runs whose program is still at it: it holds the lock of the run's journal.
func living(d dirs) ([]string, error) {
	stale, living, err := journal.FindStale(journalDir(d))
	for _, s := range stale {
		err = errors.Join(err, s.Release())
	}
	return living, err
}

// openStore is readStore where the command line names a run: none is an error.
func openStore(ctx context.Context, d dirs) (*store.Store, error) {
	st, err := readStore(ctx, d)
	if errors.Is(err, store.ErrNone) {
		return nil, check.WithHint(err, "chokepoint run makes one; runs are looked for in "+d.Data)
	}
	return st, err
}

// loadRun reads a run and its trials; name is RUN as typed.
func loadRun(ctx context.Context, d dirs, name string) (record.Run, []record.Trial, error) {
	st, err := openStore(ctx, d)
	if err != nil {
		return record.Run{}, nil, err
	}
	run, err := st.Find(ctx, name)
	var trials []record.Trial
	if err == nil {
		trials, err = st.Trials(ctx, run.ID)
	}
	if err := errors.Join(err, st.Close()); err != nil {
		return record.Run{}, nil, err
	}
	run.Design.Catalogue = registry.Catalogue().Labelled(run.Design.Labels)
	return run, trials, nil
}

// loadDocument derives the document of a stored run.
func loadDocument(ctx context.Context, d dirs, name string) (*analysis.Document, error) {
	run, trials, err := loadRun(ctx, d, name)
	if err != nil {
		return nil, err
	}
	return analysis.Derive(run, trials), nil
}

// again is how what failed is tried again.
func again(r analysis.RunHead) string {
	if record.WithPeer(r.Lab) {
		return "the plan can be run again"
	}
	return "chokepoint resume " + r.ID + " tries again"
}

// outcome is what a finished run's document means for the exit code: failed trials, missed thresholds,
// both, or nil. A trial that failed and was measured well in a later attempt does not count.
func outcome(d *analysis.Document) error {
	var errs []error
	last := map[string]analysis.TrialView{}
	for _, t := range d.Trials {
		last[t.Row] = t
	}
	failed := 0
	for _, t := range last {
		if t.Grade == evidence.GradeFailed {
			failed++
		}
	}
	if failed > 0 {
		errs = append(errs, &exitError{codeFailed,
			check.WithHint(fmt.Errorf("%s of %d failed and have no number", unit.Count(failed, "trial"),
				len(last)), "chokepoint show "+d.Run.ID+" gives the reasons; "+again(d.Run))})
	}
	for _, t := range d.Thresholds {
		if !t.Met {
			errs = append(errs, &exitError{codeThreshold, fmt.Errorf("threshold missed: %s",
				thresholdText(d, t))})
		}
	}
	return errors.Join(errs...)
}

// thresholdText is a requirement with the cell and the reason.
func thresholdText(d *analysis.Document, t comparison.Threshold) string {
	parts := []string{t.Requirement}
	for _, c := range d.Cells {
		if len(t.Factors) > 0 && c.Factors.Key() == t.Factors.Key() && len(d.Cells) > 1 {
			parts = append(parts, "in "+c.Label)
		}
	}
	if t.Reason != "" {
		parts = append(parts, "("+t.Reason+")")
	}
	return strings.Join(parts, " ")
}
