package trial

import (
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// trialCounter counts the trials that it was given.
type trialCounter struct {
	Interim
	n int
}

func (x *trialCounter) Add(*record.Trial) { x.n++ }

// TestAnotherBootBeginsAnew: what decides on later trials is not learnt from another router.
func TestAnotherBootBeginsAnew(t *testing.T) {
	c := &Campaign{NewInterim: func(*record.Run) Interim { return &trialCounter{} }}
	c.interim = c.NewInterim(&c.Run)
	row := record.Row{Assignment: record.Assignment{
		Kind:    record.RowLoad,
		Factors: record.Factors{"streams": "1"},
	}}
	for i, tt := range []struct {
		boot    string
		another bool
		trials  int
	}{{"a", false, 1}, {"a", false, 2}, {"b", true, 1}, {"", false, 2}, {"b", false, 3}, {"a", true, 1}} {
		trial := &record.Trial{
			Row:     row,
			Status:  record.TrialOK,
			Traffic: &record.Traffic{},
		}
		if tt.boot != "" {
			trial.Boots = map[string]string{"router": tt.boot}
		}

		if got := c.anotherBoot(trial); got != tt.another {
			t.Errorf("trial %d, boot %q: another boot: %v, want %v", i, tt.boot, got, tt.another)
		}

		c.remember(trial)
		if got := c.interim.(*trialCounter).n; got != tt.trials {
			t.Errorf("trial %d, boot %q: %d trials, want %d", i, tt.boot, got, tt.trials)
		}
	}
}
