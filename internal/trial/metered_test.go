package trial_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// TestMeterBesideTheTrials: what a meter tells is in each trial, until it dies; then trials end well without
// it, and one warning says so.
func TestMeterBesideTheTrials(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	script := filepath.Join(dir, "watts.sh")
	dead := filepath.Join(dir, "dead")
	told := filepath.Join(dir, "told") // a byte for each reading
	text := "while ! test -e " + dead + "; do echo 6.8; echo >>" + told + "; sleep 0.02; done; " +
		"echo unplugged >&2; exit 1\n"
	if err := os.WriteFile(script, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}

	r := rig(t, "name: x\nmethod: {runs: 3, seed: 1}\nmatrix: {streams: 1}\n"+
		"measure: {latency_idle: block, verify: false}\n")
	r.Plan.Design.Method.Duration = 300 * time.Millisecond
	r.Plan.Design.Method.Idle = 300 * time.Millisecond
	r.Run.Meter = &record.Meter{At: "command:sh " + script}
	loads := 0
	r.Labs.Engine.Watch = func(record.Load) {
		switch loads++; loads {
		case 1: // lasts for some readings, however late the shell begins
			for n := sizeOf(told); sizeOf(told) < n+8; {
				time.Sleep(time.Millisecond)
			}
		case 2:
			if err := os.WriteFile(dead, nil, 0o600); err != nil {
				t.Error(err)
			}
		}
	}
	execute(t, r)
	if r.Outcome.Failed > 0 || r.Outcome.Trials != 6 {
		t.Errorf("outcome: got %+v, want six trials, none failed", r.Outcome)
	}

	warned := 0
	for _, e := range r.Events("warning") {
		if strings.Contains(e.Text, `power meter gives no readings: it ended; it says "unplugged"`) {
			warned++
		}
	}

	if warned != 1 {
		t.Errorf("got %d warnings, want one: %v", warned, r.Events("warning"))
	}

	first := r.Trials[slices.IndexFunc(r.Trials, func(tr record.Trial) bool {
		return tr.Row.Kind == record.RowLoad
	})]
	last := r.Trials[len(r.Trials)-1]
	if m := first.Meter; m == nil || m.Table == nil || len(m.Table.T) < 5 || m.Table.T[1] < first.Origin ||
		m.Table.T[len(m.Table.T)-1] > first.Ended {
		t.Errorf("the first load: got %+v, want readings of its time", m)
	}

	if m := last.Meter; m == nil || m.Table != nil || !strings.Contains(m.Unavailable, "unplugged") ||
		len(last.Caveats) == 0 || last.Caveats[len(last.Caveats)-1].Kind != "meter-failed" {
		t.Errorf("the last trial: got %+v with %v, want no reading and why", m, last.Caveats)
	}

	c := analysis.Derive(r.Campaign.Run, r.Trials).Cells[0]
	v := c.Metrics[metrics.PowerLoaded]
	if v.N == 0 || v.Median != 6.8 || v.N == 3 {
		t.Errorf("power under load: got %+v, want 6.8 W of some trials", v)
	}
}

// sizeOf returns the size of a file, 0 if it does not exist yet.
func sizeOf(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

// TestMeterThatCannotBeOpened ends the run before its first trial: its password is not there.
func TestMeterThatCannotBeOpened(t *testing.T) {
	r := rig(t, "name: x\nmethod: {runs: 1, seed: 1}\nmatrix: {streams: 1}\n")
	r.Run.Meter = &record.Meter{At: "shelly://192.0.2.5?password_env=CHOKEPOINT_TEST_NOT_SET"}
	err := r.Execute(t.Context())
	if err == nil || !strings.Contains(err.Error(), "CHOKEPOINT_TEST_NOT_SET") || len(r.Trials) > 0 {
		t.Errorf("got %v and %d trials, want that the variable is missing", err, len(r.Trials))
	}
}
