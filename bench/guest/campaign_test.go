// Package guest_test measures virtual routers and asserts on what an emulator cannot distort: ratios and
// counters, never rates. It starts the chokepoint that it is given and checks the runs that this stores.
//
//	go -C bench test ./guest -timeout 0 -binary FILE -run TestRatios
//
// TestRatios holds what rules, flow tables, queues, tunnels and limits do; TestPlans runs the built-in plans
// after published tables, with short windows; TestSame counts how often two cells that are the same are
// called different.
package guest_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
	"github.com/chokepoint-lab/chokepoint/internal/registry"
)

var (
	binary   = flag.String("binary", "", "the chokepoint to run, by its whole path")
	kind     = flag.String("lab", "vm", "kind of lab")
	runs     = flag.Int("runs", 1, "runs of TestSame, with seeds from 1 on")
	keepFile = flag.String("keep", "", "a file to which TestSame adds each run, to go on from there")
)

// needsProgram skips a test of the program where none is given: each takes minutes.
func needsProgram(t *testing.T) {
	if *binary == "" {
		t.Skip("skip: measures virtual routers for minutes: -binary says with which chokepoint")
	}
}

// campaign is one run of chokepoint, as it was stored and as it is shown.
type campaign struct {
	trials []record.Trial
	doc    *analysis.Document
}

// measure runs a plan, the text of a file, and returns what was stored. Failed trials are no error: they
// are checked.
func measure(t *testing.T, limit time.Duration, plan string, args ...string) campaign {
	file := filepath.Join(t.TempDir(), "plan.yaml")
	if err := os.WriteFile(file, []byte(plan), 0o600); err != nil {
		t.Fatal(err)
	}
	return start(t, limit, append([]string{file}, args...)...)
}

// start is measure for the arguments of chokepoint run.
func start(t *testing.T, limit time.Duration, args ...string) campaign {
	ctx, cancel := context.WithTimeout(t.Context(), limit) // a guest that hangs must not hang the suite
	defer cancel()
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	dir := t.TempDir()
	cmd := exec.CommandContext(ctx, *binary, slices.Concat([]string{"run", "--lab", *kind, "--report",
		filepath.Join(dir, "report.html")}, args)...)
	cmd.Env = append(os.Environ(), "XDG_DATA_HOME="+dir)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	cmd.Stderr = t.Output()
	_, err := cmd.Output()
	const exitFailedTrials = 3
	var exit *exec.ExitError
	if err != nil && !(errors.As(err, &exit) && exit.ExitCode() == exitFailedTrials) {
		t.Fatalf("chokepoint run: %v", err)
	}
	st, err := store.OpenReadOnly(ctx, filepath.Join(dir, "chokepoint", "runs.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	heads, err := st.Runs(ctx)
	if err != nil || len(heads) == 0 {
		t.Fatalf("the store has no run: %v", err)
	}
	run, err := st.Find(ctx, heads[0].ID)
	trials, err2 := st.Trials(ctx, heads[0].ID)
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	run.Design.Catalogue = registry.Catalogue()
	c := campaign{trials, analysis.Derive(run, trials)}
	if len(c.faults()) > 0 {
		quoteConsoles(t, filepath.Join(dir, "chokepoint", "runs"))
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
	for _, s := range c.doc.Skipped {
		errs = append(errs, fmt.Errorf("skipped: %s: %s", s.Factors.Key(), s.Reason))
	}
	for i := range c.trials {
		// The load with too many connections may rightly fail; its counters are checked.
		if t := &c.trials[i]; t.Failure != nil && !is(t.Row.Factors, overfull) {
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
	for i := range c.trials {
		if t := &c.trials[i]; t.Row.Kind == record.RowLoad && is(t.Row.Factors, want) {
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
	return err == nil && slices.ContainsFunc(c.doc.Trials, func(v analysis.TrialView) bool {
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
	for _, v := range c.doc.Trials {
		if x, ok := v.Metrics[name]; ok && v.ID == t.ID {
			return x, nil
		}
	}
	return 0, fmt.Errorf("trial %s has no %s", t.ID, name)
}
