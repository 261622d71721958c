package analysis

import (
	"github.com/chokepoint-lab/chokepoint/internal/analysis/diagnosis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/validity"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Observe joins a judged trial of a load with what it is held against.
func Observe(run *record.Run, j *validity.Judged) *diagnosis.Observation {
	f := j.Trial.Row.Factors
	line := validity.CeilingOf(run, f)
	kind, tester := validity.TesterCeiling(run, f)
	return &diagnosis.Observation{Run: run, Trial: j.Trial, Metrics: j.Metrics, Reasons: j.Reasons,
		Line:   diagnosis.Limit{Kind: line.Kind, Value: line.Bps},
		Tester: diagnosis.Limit{Kind: kind, Value: tester}}
}

// diagnose joins what was said of the trials that count.
func (g *group) diagnose(of map[*validity.Judged][]diagnosis.Judgement) {
	var trials [][]diagnosis.Judgement
	for _, j := range g.good() {
		if all := of[j]; all != nil {
			trials = append(trials, all)
		}
	}
	g.cell.Diagnosis = diagnosis.Conclude(trials)
}
