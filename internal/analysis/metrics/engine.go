package metrics

import (
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

func (m *Measured) addEngine(tr *record.Traffic) {
	why := ""
	switch len(tr.Ends) {
	case 0:
		why = "engine " + tr.Engine + " reports no CPU time"
	case 1:
		why = "engine " + tr.Engine + " reports the CPU time of one end only"
	}

	ns := int64(0)
	for _, u := range tr.Ends {
		ns += u.UserNs + u.SystemNs
	}

	m.setUnless(why, EngineCPU, float64(ns)/1e9)
}

func (m *Measured) addConsistency(t *record.Trial) {
	curves, all := Received(t.Traffic)
	r, ok := statistics.WindowEvenness(curves, t.Window.Start, t.Window.End)
	why := ""
	switch {
	case !all:
		why = "the engine gave no interval series for every flow"
	case !ok:
		why = "the window is too short to check: it needs seven bins of 200 ms"
	}

	m.setUnless(why, Consistency, r)
}
