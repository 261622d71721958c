package metrics

import (
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

func (m *Measured) addEngine(tr *record.Traffic) {
	if len(tr.Ends) == 0 {
		m.Lack("engine "+tr.Engine+" reports no CPU time", EngineCPU)
		return
	}

	if len(tr.Ends) < 2 {
		m.Lack("engine "+tr.Engine+" reports the CPU time of one end only", EngineCPU)
		return
	}

	ns := int64(0)
	for _, u := range tr.Ends {
		ns += u.UserNs + u.SystemNs
	}

	m.Set(EngineCPU, float64(ns)/1e9)
}

func (m *Measured) addConsistency(t *record.Trial) {
	curves, all := Received(t.Traffic)
	if !all {
		m.Lack("the engine gave no interval series for every flow", Consistency)
		return
	}

	r, ok := statistics.WindowEvenness(curves, t.Window.Start, t.Window.End)
	if !ok {
		m.Lack("the window is too short to check: it needs seven bins of 200 ms", Consistency)
		return
	}

	m.Set(Consistency, r)
}
