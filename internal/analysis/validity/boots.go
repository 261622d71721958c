package validity

import (
	"maps"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// SetAside keeps, for each router, the trials of one boot (see record.Trial.Boots). This is the boot with the
// most successful trials or, of several such boots, the earliest one. SetAside marks the trials of other
// boots as failed, and returns them. all must be in the order of the run.
func SetAside(all []*Graded) (aside []*Graded) {
	type boot struct{ router, id string }
	count := map[boot]int{}
	each := func(j *Graded, f func(boot)) {
		for _, router := range slices.Sorted(maps.Keys(j.Trial.Boots)) {
			f(boot{router, j.Trial.Boots[router]})
		}
	}
	for _, j := range all {
		if j.Grade != evidence.GradeFailed && j.Trial.Row.OfCell() {
			each(j, func(b boot) { count[b]++ })
		}
	}

	kept := map[string]boot{}
	for _, j := range all {
		each(j, func(b boot) {
			if best, ok := kept[b.router]; !ok || count[b] > count[best] {
				kept[b.router] = b
			}
		})
	}

	for _, j := range all {
		other := ""
		each(j, func(b boot) {
			if kept[b.router] != b {
				other = b.router
			}
		})
		if other == "" || j.Grade == evidence.GradeFailed {
			continue
		}

		t := *j.Trial
		t.Status = record.TrialFailed
		t.Failure = &record.Failure{
			Phase: record.PhaseSetup,
			Error: other +
				" was booted anew in the middle " +
				"of the run, and most trials are of another boot: this one is set aside",
			Hint: "run it again; a lab that the run makes by itself has the same router at every boot",
		}
		*j = Graded{
			Trial:   &t,
			Metrics: metrics.NewMeasured(),
			Grade:   evidence.GradeFailed,
			Reasons: []evidence.Reason{},
		}
		aside = append(aside, j)
	}

	return aside
}
