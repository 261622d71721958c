package analysis

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/validity"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// group is a cell with its trials, in run order.
type group struct {
	factors              record.Factors
	trials, idle, verify []*validity.Judged
	found                []*validity.Judged // of each search the trial that stands for it
	search               []*SearchView
	cell                 Cell
}

// good are the trials that have numbers; a repeated row counts once, with its last good attempt, and one
// that was searched with the trial that stands for it.
func (g *group) good() []*validity.Judged {
	if len(g.search) > 0 {
		return g.found
	}
	return validity.LastGood(g.trials)
}

// byBlock is a metric's value in each block; idle metrics come from the idle measurements of the path where
// the trials themselves have none.
func (g *group) byBlock(metric string) map[int]float64 {
	out := map[int]float64{}
	for _, source := range [][]*validity.Judged{validity.LastGood(g.idle), g.good()} {
		for _, j := range source {
			if v, ok := j.Metrics.Values[metric]; ok {
				out[j.Trial.Row.Block] = v
			}
		}
	}
	return out
}

// valuesOf are the values of a metric, of those trials that have one.
func valuesOf(trials []*validity.Judged, metric string) []float64 {
	var values []float64
	for _, j := range trials {
		if v, ok := j.Metrics.Values[metric]; ok {
			values = append(values, v)
		}
	}
	return values
}

// groups sorts trials into the cells of the design, in the order listed; cells of the trials come after
// those of the design.
func groups(run *record.Run, trials []*validity.Judged) []*group {
	var out []*group
	index := map[string]*group{}
	add := func(f record.Factors) *group {
		key := f.Key()
		if g, ok := index[key]; ok {
			return g
		}
		g := &group{factors: f}
		index[key] = g
		out = append(out, g)
		return g
	}
	skipped := map[string]bool{} // listed with their reasons instead
	for _, s := range skippedCells(run, trials) {
		skipped[s.Factors.Key()] = true
	}
	for _, f := range run.Design.Cells {
		if !skipped[f.Key()] {
			add(f)
		}
	}
	idle, verify := map[string][]*validity.Judged{}, map[string][]*validity.Judged{}
	for _, j := range trials {
		path := run.Design.Path(j.Trial.Row.Factors).Key()
		switch j.Trial.Row.Kind {
		case record.RowIdle:
			idle[path] = append(idle[path], j)
		case record.RowVerify:
			verify[path] = append(verify[path], j)
		default:
			g := add(j.Trial.Row.Factors)
			g.trials = append(g.trials, j)
		}
	}
	for _, g := range out {
		path := run.Design.Path(g.factors).Key()
		g.idle, g.verify = idle[path], verify[path]
	}
	return out
}

// skippedCells are those of the design and of the lab, without those that have a trial: a run that is
// resumed may be able to do what it could not at first.
func skippedCells(run *record.Run, trials []*validity.Judged) []record.Skipped {
	measured := map[string]bool{}
	for _, j := range trials {
		if j.Trial.Row.Kind == record.RowLoad {
			measured[j.Trial.Row.Factors.Key()] = true
		}
	}
	all := slices.Concat(run.Design.Skipped, run.Skipped)
	return orEmpty(slices.DeleteFunc(all, func(s record.Skipped) bool { return measured[s.Factors.Key()] }))
}

// summariseCell fills in metrics, missing ones, ceiling and consistency.
func (g *group) summariseCell(run *record.Run, declarations []record.Metric) {
	c := &g.cell
	good := g.good()
	c.Metrics, c.Missing = map[string]statistics.Value{}, map[string]string{}
	if len(good) == 0 {
		return
	}
	g.summariseLatency(good)
	for _, m := range declarations {
		if strings.HasPrefix(m.Name, "rtt_idle_") || strings.HasPrefix(m.Name, "rtt_loaded_") {
			continue
		}
		values, why := valuesOf(good, m.Name), ""
		for _, j := range good {
			why = cmp.Or(j.Metrics.Missing[m.Name], why)
		}
		switch {
		case len(values) > 0:
			c.Metrics[m.Name] = statistics.Summarise(values)
		case why != "":
			c.Missing[m.Name] = why
		}
		if n := len(values); n > 0 && n < len(good) {
			c.Caveats = append(c.Caveats, record.Caveat{Kind: "partly-missing",
				Text: fmt.Sprintf("%s: known in %d of %d trials (%s)", m.Label, n, len(good), why)})
		}
	}
	if v, ok := c.Metrics[metrics.Consistency]; ok {
		r := statistics.Median(v.Values)
		c.Consistency = &Consistency{Word: statistics.ConsistencyWord(r), Ratio: r}
	}
	g.addCeiling(run)
}

func (g *group) addCeiling(run *record.Run) {
	c := &g.cell
	ceil := validity.CeilingOf(run, g.factors)
	c.Ceiling = CellCeiling{Kind: ceil.Kind, Bps: ceil.Bps, HeaderEfficiency: ceil.Efficiency}
	v, ok := c.Metrics[metrics.Goodput]
	if !ok {
		return
	}
	if ceil.Bps > 0 {
		c.Ceiling.Ratio = v.Median / ceil.Bps
	}
	kind, top := validity.TesterCeiling(run, g.factors)
	if top <= 0 {
		return
	}
	if metric := validity.TesterMetric(g.factors); metric != metrics.Goodput {
		if v, ok = c.Metrics[metric]; !ok {
			return
		}
	}
	value := v.Median
	c.Ceiling.TesterKind, c.Ceiling.TesterRatio = kind, value/top
	if run.Near().CPUs != record.CPUsShared && top < 1.2*value {
		c.Reasons = append(c.Reasons, evidence.Reason{Kind: evidence.ReasonTesterLimited,
			Text: fmt.Sprintf("the tester alone (%s) is less than 1.2 times as fast", kind)})
		c.Grade = evidence.GradeSuspect
	}
}
