package app

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/diagnosis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/tuning"
)

// TestExperimentsKeepWhatWasFound: a level that would undo what a router's owner has set is no step and no
// fix; where none is left, there is a reason.
func TestExperimentsKeepWhatWasFound(t *testing.T) {
	undoes := func(c tuning.Change) string {
		if strings.HasPrefix(c.Levels["queue"], "pfifo") {
			return "it would take away a rate"
		}
		return ""
	}
	of := func(fix string, steps ...string) diagnosis.Experiment {
		e := diagnosis.Experiment{Factor: "queue", Fix: fix, Steps: steps}
		for i := range steps {
			e.Resource = append(e.Resource, float64(i+1))
		}
		return e
	}
	for _, test := range []struct {
		name    string
		e, want diagnosis.Experiment
		why     string
	}{
		{"the fix alone undoes it", of("pfifo limit 1000", "tbf 1"), of("", "tbf 1"), ""},
		{"a step does", of("tbf 3", "pfifo limit 2", "tbf 1"), diagnosis.Experiment{
			Factor:   "queue",
			Fix:      "tbf 3",
			Steps:    []string{"tbf 1"},
			Resource: []float64{2},
		}, ""},
		{"all do", of("pfifo limit 1000", "pfifo limit 2"), of(""), "it would take away a rate"},
		{"none does", of("tbf 3", "tbf 1"), of("tbf 3", "tbf 1"), ""},
	} {
		got, why := without(test.e, undoes)
		d := cmp.Diff(test.want, got)
		if d != "" || why != test.why {
			t.Errorf("%s: got reason %q, and %s", test.name, why, d)
		}
	}
}
