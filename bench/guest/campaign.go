package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/chokepoint-lab/chokepoint/bench/rig"
	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// bench is what the suites run with.
type bench struct {
	binary, lab string
	runs        int         // of the suite same
	keepFile    string      // of the suite same
	skipped     func(n int) // counts claims that could not be judged
	out, log    io.Writer
}

// campaign is one run of chokepoint.
type campaign struct{ rig.Campaign }

// measure runs a plan, the text of a file, and returns what was stored. Failed trials are no error: they
// are judged.
func (b bench) measure(ctx context.Context, limit time.Duration, plan string, args ...string) (campaign,
	error) {
	dir, err := os.MkdirTemp("", "chokepoint-guest-")
	if err != nil {
		return campaign{}, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "plan.yaml")
	if err := os.WriteFile(file, []byte(plan), 0o600); err != nil {
		return campaign{}, err
	}
	return b.start(ctx, limit, dir, append([]string{file}, args...)...)
}

// start is measure for the arguments of chokepoint run, with the store in dir.
func (b bench) start(ctx context.Context, limit time.Duration, dir string, args ...string) (campaign, error) {
	ctx, cancel := context.WithTimeout(ctx, limit) // a guest that hangs must not hang the suite
	defer cancel()
	args = slices.Concat([]string{"run"}, args, []string{"--lab", b.lab, "--report",
		filepath.Join(dir, "report.html")})
	cmd := exec.CommandContext(ctx, b.binary, args...)
	cmd.Env = append(os.Environ(), "XDG_DATA_HOME="+dir)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	cmd.Stderr = b.log
	_, runErr := cmd.Output()
	var exit *exec.ExitError
	if runErr != nil && !(errors.As(runErr, &exit) && exit.ExitCode() == exitFailedTrials) {
		return campaign{}, fmt.Errorf("chokepoint run: %w", runErr)
	}
	c, err := rig.Latest(ctx, dir)
	return campaign{c}, err
}

// exitFailedTrials is chokepoint's exit code where trials failed.
const exitFailedTrials = 3

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
		if t := &c.Trials[i]; t.Row.Kind == record.RowLoad && is(t.Row.Factors, want) {
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
	return err == nil && slices.ContainsFunc(c.Doc.Trials, func(v analysis.TrialView) bool {
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
	for _, v := range c.Doc.Trials {
		if x, ok := v.Metrics[name]; ok && v.ID == t.ID {
			return x, nil
		}
	}
	return 0, fmt.Errorf("trial %s has no %s", t.ID, name)
}
