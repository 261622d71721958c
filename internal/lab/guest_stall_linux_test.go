package lab_test

import (
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
)

// TestAStoppedGuestMarksItsTrial: the emulator is stopped for three seconds of a window. That trial ends
// well, and its number is doubted; those before and after are not.
func TestAStoppedGuestMarksItsTrial(t *testing.T) {
	c := threeTrials(t)
	c.onPhase(record.PhaseWindow, 2, func() {
		freeze(t, c.labs.Dir, c.lab.ID, syscall.SIGSTOP)
		time.AfterFunc(3*time.Second, func() { freeze(t, c.labs.Dir, c.lab.ID, syscall.SIGCONT) })
	})
	must(t, c.conclude(t))
	for i, tr := range analysis.Derive(c.Run, c.trials).Trials {
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
	c := threeTrials(t)
	c.onPhase(record.PhaseVerify, 2, func() {
		labtest.Exec(t, c.lab, "router", "ip", "link", "set", "wan", "down")
	})
	must(t, c.conclude(t))
	for i, tr := range c.trials {
		failed := tr.Failure != nil && strings.Contains(tr.Failure.Error, "passes no packet")
		if failed != (i == 1) || (tr.Failure != nil) != failed {
			t.Errorf("trial %d: %+v, want the second alone failed", i+1, tr.Failure)
		}
	}
}

// threeTrials are to be made in a guest.
func threeTrials(t *testing.T) *campaign {
	t.Helper()
	labs := &lab.Locals{Local: lab.Local{Guest: labtest.Guest(t)}}
	return newCampaign(t, labs, 3, "streams: 1", 6*time.Second, time.Second)
}
