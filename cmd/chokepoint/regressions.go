package main

import (
	"errors"
	"fmt"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// regression returns the error about a cell that is worse.
func regression(cell, why string) error {
	return app.Mark(app.ErrThreshold, fmt.Errorf("regression: %s: %s", cell, why))
}

// regressions returns an error that joins all regressions. Suspect regressions count only if strict is set.
// It prints a note about uncounted regressions and about cells without a verdict. It returns an error if
// nothing was compared.
func (p *program) regressions(c *analysis.RunComparison, labels map[string]string, strict bool) error {
	var errs []error
	suspect := 0
	for _, r := range c.Regressions {
		if r.Suspect && !strict {
			suspect++
			continue
		}

		errs = append(errs, regression(labels[r.Factors.Key()], r.Text))
	}

	for _, f := range c.OnlyA {
		errs = append(errs, regression(labels[f.Key()], c.LossWords(f)))
	}

	if suspect > 0 {
		p.note("%s not counted: suspect (--strict counts them)", unit.Count(suspect, "regression"))
	}

	decided := map[string]bool{}
	for _, x := range c.Comparisons {
		key := x.Factors.Key()
		decided[key] = decided[key] || x.Verdict != statistics.TooFew()
	}

	few := 0
	for _, yes := range decided {
		if !yes {
			few++
		}
	}

	switch {
	case len(decided) == 0:
		errs = append(errs, app.Hinted("chokepoint show lists the cells of a run",
			"nothing was compared: the two runs have no cell in common that both measured"))
	case few == len(decided):
		p.note("no cell can have a verdict: fewer than %d runs of each in A or B", statistics.MinInterval)
	case few > 0:
		p.note("%d of %s can have no verdict: fewer than %d runs in A or B", few,
			unit.Count(len(decided), "cell"), statistics.MinInterval)
	}

	return errors.Join(errs...)
}
