package trial_test

import (
	"slices"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// TestPhaseWindowIsTheWindow: the phases of a load are cut at the edges of
// the timeline, whenever the engine and the latency probe come back.
func TestPhaseWindowIsTheWindow(t *testing.T) {
	r := rig(t, "name: x\nmethod: {runs: 1}\nmatrix: {streams: 1}\nmeasure: {latency_idle: off, latency_loaded: true, verify: false}\n")
	execute(t, r)
	for _, tr := range r.Trials {
		i := slices.IndexFunc(tr.Phases, func(p record.Phase) bool { return p.Name == record.PhaseWindow })
		if i < 1 {
			t.Fatalf("trial %s (%s): got phases %+v, want a window after the warm-up", tr.ID, tr.Status, tr.Phases)
		}
		if got, want := tr.Phases[i], (record.Phase{Name: record.PhaseWindow, Start: tr.Window.Start, End: tr.Window.End}); got != want {
			t.Errorf("trial %s: got %+v, want %+v", tr.ID, got, want)
		}
		if got := tr.Phases[i-1]; got.Name != record.PhaseWarmup || got.End != tr.Window.Start {
			t.Errorf("trial %s: got %+v before the window, want the warm-up until its start, %d", tr.ID, got, tr.Window.Start)
		}
	}
	if len(r.Trials) != 1 {
		t.Errorf("got %d trials, want 1", len(r.Trials))
	}
}
