package analysis

import (
	"maps"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/diagnosis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/validity"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// paths says of each path that was probed what both ends can tell of it.
func paths(run *record.Run, cells []*group) []diagnosis.Path {
	var keys []string
	of := map[string][]diagnosis.Cell{}
	by := map[string]record.Factors{}
	for _, g := range cells {
		f := run.Design.Path(g.factors)
		key := f.Key()
		if _, seen := of[key]; !seen {
			keys = append(keys, key)
			by[key] = f
		}
		_, tester := validity.TesterCeiling(run, g.factors)
		of[key] = append(of[key], diagnosis.Cell{Factors: g.factors, Metrics: ofEnds(g.cell.Metrics),
			Runs: g.cell.Runs, Failed: g.cell.Failed, Tester: tester,
			Seconds: run.Design.Method.Duration.Seconds()})
	}
	varying := varyingFactors(run.Design.Catalogue, cells)
	var out []diagnosis.Path
	for _, key := range keys {
		if p := diagnosis.Blackbox(of[key]); p != nil {
			p.Factors, p.Label = by[key], labelOf(run.Design.Catalogue, by[key], varying)
			out = append(out, *p)
		}
	}
	return out
}

// ofEnds are the metrics that the two ends measure themselves.
func ofEnds(all map[string]statistics.Value) map[string]statistics.Value {
	out := maps.Clone(all)
	maps.DeleteFunc(out, func(name string, _ statistics.Value) bool {
		scope := metrics.Of(name).Scope
		return scope != record.ScopePath && scope != record.ScopeFlow
	})
	return out
}
