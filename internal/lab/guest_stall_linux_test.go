package lab_test

import (
	"context"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/labtest"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/registry"
	"github.com/chokepoint-lab/chokepoint/internal/registry/node"
	"github.com/chokepoint-lab/chokepoint/internal/trial"
)

// TestAStoppedGuestMarksItsTrial: the emulator is stopped for three seconds of a window. That trial ends
// well, and its number is doubted; those before and after are not.
func TestAStoppedGuestMarksItsTrial(t *testing.T) {
	c, labs, l, trials := threeTrials(t)
	windows := 0
	c.Sink = func(e record.Event) {
		if e.Event != "phase" || e.Phase != record.PhaseWindow {
			return
		}
		if windows++; windows == 2 {
			freeze(t, labs.Dir, l.ID, syscall.SIGSTOP)
			time.AfterFunc(3*time.Second, func() { freeze(t, labs.Dir, l.ID, syscall.SIGCONT) })
		}
	}
	conclude(t, c)
	for i, tr := range analysis.Derive(c.Run, *trials).Trials {
		marked := slices.ContainsFunc(tr.Reasons, func(r evidence.Reason) bool {
			return r.Kind == evidence.ReasonSamplerStalled
		})
		if marked != (i == 1) || tr.Failure != nil {
			t.Errorf("trial %d: %v, %v, want the second marked alone", i+1, tr.Reasons, tr.Failure)
		}
	}
}

// TestAGuestThatPassesNothingIsBootedAnew: its port stops before the second trial, while its agent answers.
func TestAGuestThatPassesNothingIsBootedAnew(t *testing.T) {
	c, _, l, trials := threeTrials(t)
	paths := 0
	c.Sink = func(e record.Event) {
		if e.Event != "phase" || e.Phase != record.PhaseVerify {
			return
		}
		if paths++; paths == 2 {
			labtest.Exec(t, l, "router", "ip", "link", "set", "wan", "down")
		}
	}
	conclude(t, c)
	for i, tr := range *trials {
		failed := tr.Failure != nil && strings.Contains(tr.Failure.Error, "passes no packet")
		if failed != (i == 1) || (tr.Failure != nil) != failed {
			t.Errorf("trial %d: %+v, want the second alone failed", i+1, tr.Failure)
		}
	}
}

// threeTrials are to be made in a guest.
func threeTrials(t *testing.T) (*trial.Campaign, *lab.Locals, *lab.Lab, *labtest.Trials) {
	t.Helper()
	p := labtest.ReadPlan(t, `
name: x
method: {runs: 3, order: listed, seed: 1}
matrix: {streams: 1}
measure: {latency_idle: off, latency_loaded: false, verify: false, telemetry: true}
`, registry.Vocabulary())
	p.Design.Method.Duration, p.Design.Method.Warmup = 6*time.Second, time.Second
	labs := &lab.Locals{Owner: "run", Dir: t.TempDir(), Parts: registry.LabParts(), Guest: labtest.Guest(t)}
	l, err := labs.For(t.Context(), "forward", record.GuestSize{})
	labtest.Refused(t, err)
	if err != nil {
		t.Fatal(err)
	}
	trials := &labtest.Trials{}
	return &trial.Campaign{Run: record.Run{ID: "run", Lab: record.LabVM, Design: p.Design,
		Topologies: []record.Topology{l.Topology}}, Plan: p, Labs: labs,
		Engines: node.Engines(), Prober: node.Prober(), Probes: node.Probes(), NewInterim: interim,
		Store: trials}, labs, l, trials
}

func conclude(t *testing.T, c *trial.Campaign) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	if err := c.Prepare(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Execute(ctx); err != nil {
		t.Error(err)
	}
	if err := c.Close(ctx); err != nil {
		t.Errorf("close: %v", err)
	}
}
