// Package guest_test measures virtual routers and asserts on what an emulator cannot distort: ratios and
// counters, never rates. It runs plans as chokepoint does and checks what was stored.
//
//	go -C bench test ./guest -timeout 0 -measure -run TestRatios
//
// TestRatios holds what rules, flow tables, queues, tunnels and limits do; TestPlans runs the built-in plans
// after published tables, with short windows; TestSame counts how often two cells that are the same are
// called different.
package guest_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/bench/rig"
	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/progress"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

var (
	needed   = flag.Bool("measure", false, "measure virtual routers, which takes minutes")
	kind     = flag.String("lab", "vm", "kind of lab")
	runs     = flag.Int("runs", 1, "runs of TestSame, with seeds from 1 on")
	keepFile = flag.String("keep", "", "a file to which TestSame adds each run, to go on from there")
)

// TestMain lets the test program play the roles of a lab.
func TestMain(m *testing.M) { os.Exit(rig.Tests(m)) }

// needsTime skips a test that measures, unless that is asked for.
func needsTime(t *testing.T) {
	if !*needed {
		t.Skip("skip: measures virtual routers for minutes: -measure asks for it")
	}
}

// campaign is one run of chokepoint, as it was stored and as it is shown.
type campaign struct{ rig.Stored }

// measure runs the text of a plan, with values of it replaced, and returns what was stored. Failed trials are
// no error: they are checked.
func measure(t *testing.T, limit time.Duration, lab, text string, sets ...string) campaign {
	ctx, cancel := context.WithTimeout(t.Context(), limit) // a guest that hangs must not hang the suite
	defer cancel()
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	pl, err := app.ReadPlan("plan.yaml", text, app.Peer{}, sets...)
	if err != nil {
		t.Fatal(err)
	}

	a := rig.OwnApp(t.Logf)
	a.Events = func() progress.Sink { return progress.Quiet(t.Output()) }
	a.Dirs.Data = t.TempDir()
	stored, err := rig.Run(ctx, a, pl, lab, app.RunOptions{})
	if err != nil {
		t.Fatal(err)
	}

	c := campaign{stored}
	if len(c.faults()) > 0 {
		quoteConsoles(t, filepath.Join(a.Dirs.Data, "runs"))
	}

	return c
}

// quoteConsoles tells the end of what the guests' kernels said.
func quoteConsoles(t *testing.T, runs string) {
	files, _ := filepath.Glob(filepath.Join(runs, "*", "*.console")) // the pattern is well-formed
	for _, file := range files {
		said, err := os.ReadFile(file)
		t.Logf("%s: %s %v", filepath.Base(file), said[max(0, len(said)-4000):], err)
	}
}

// faults returns what no plan of these tests may have.
func (c campaign) faults() (errs []error) {
	for _, s := range c.Document.Skipped {
		errs = append(errs, fmt.Errorf("skipped: %s: %s", s.Factors.Key(), s.Reason))
	}

	for i := range c.Trials {
		// The load with too many connections may rightly fail; its counters are checked.
		t := &c.Trials[i]
		if t.Failure != nil && !is(t.Row.Factors, overfull) {
			errs = append(errs, fmt.Errorf("trial %s of %s failed in %s: %s", t.ID, t.Row.Factors.Key(),
				t.Failure.Phase, t.Failure.Error))
		}
	}
	return errs
}

// wrong fails a test for each of some faults.
func wrong(t *testing.T, errs []error) {
	t.Helper()
	for _, err := range errs {
		t.Error(err)
	}
}

// is says whether factors have all of the wanted levels; of a factor that is wanted to be "" there must be
// none.
func is(f, want record.Factors) bool {
	for name, level := range want {
		if f[name] != level {
			return false
		}
	}
	return true
}

// trial is the one load of the cell with the wanted levels.
func (c campaign) trial(want record.Factors) (*record.Trial, error) {
	var found *record.Trial
	for i := range c.Trials {
		t := &c.Trials[i]
		if t.Row.Kind == record.RowLoad && is(t.Row.Factors, want) {
			if found != nil {
				return nil, fmt.Errorf("both %s and %s are %s", found.ID, t.ID, want.Key())
			}

			found = t
		}
	}

	if found == nil {
		return nil, fmt.Errorf("no trial is %s", want.Key())
	}

	return found, nil
}

// shared says whether others used the machine in that trial.
func (c campaign) shared(want record.Factors) bool {
	t, err := c.trial(want)
	return err == nil && slices.ContainsFunc(c.Document.Trials, func(v analysis.TrialView) bool {
		return v.ID == t.ID && slices.ContainsFunc(v.Reasons,
			func(r evidence.Reason) bool { return r.Kind == evidence.ReasonBackgroundLoad })
	})
}

// metric is a number of that trial.
func (c campaign) metric(want record.Factors, name string) (float64, error) {
	t, err := c.trial(want)
	if err != nil {
		return 0, err
	}

	for _, v := range c.Document.Trials {
		if x, ok := v.Metrics[name]; ok && v.ID == t.ID {
			return x, nil
		}
	}

	return 0, fmt.Errorf("trial %s has no %s", t.ID, name)
}
