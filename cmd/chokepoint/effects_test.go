package main

import (
	"slices"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/model"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
)

// TestSingleRuns: an interaction of one run at each level contains whatever else changed between the runs.
func TestSingleRuns(t *testing.T) {
	x := model.Interaction{
		Effect: model.Effect{
			Factor:  "queue",
			Level:   "fq_codel",
			Against: "pfifo",
			Verdict: statistics.Different,
		},
		With:   "clock",
		At:     "auto",
		Beside: "1400MHz",
	}
	e := model.Effects{Interactions: []model.Interaction{x}}
	at := func(clocks ...string) {
		e.Runs = nil
		for _, clock := range clocks {
			e.Runs = append(e.Runs, model.EffectRun{Levels: map[string]string{"clock": clock}})
		}
	}
	at("auto", "1400MHz")
	if got := singleRuns(e); !slices.Equal(got, []string{"clock"}) {
		t.Errorf("one run at each clock: got %q", got)
	}

	at("auto", "1400MHz", "auto", "1400MHz")
	if got := singleRuns(e); len(got) > 0 {
		t.Errorf("two runs at each clock: got %q", got)
	}
}
