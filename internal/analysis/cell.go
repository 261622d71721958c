package analysis

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/validity"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// group holds a cell and its trials, in the order of the run.
type group struct {
	factors              record.Factors
	trials, idle, verify []*validity.Graded
	found                []*validity.Graded // for each search: the trial that represents it
	search               []*SearchView
	cell                 Cell
}

// good returns the trials with numbers. A repeated row counts once, with its last good attempt. A search
// counts once, with the trial that represents it.
func (g *group) good() []*validity.Graded {
	if len(g.search) > 0 {
		return g.found
	}
	return validity.LastGood(g.trials)
}

// blocks returns the value of each metric in each block. Idle metrics that the trials lack come from the idle
// measurements of the path.
func (g *group) blocks() map[string]map[int]float64 {
	out := map[string]map[int]float64{}
	for _, j := range slices.Concat(validity.LastGood(g.idle), g.good()) {
		for metric, v := range j.Metrics.Values {
			if out[metric] == nil {
				out[metric] = map[int]float64{}
			}

			out[metric][j.Trial.Row.Block] = v
		}
	}
	return out
}

// valuesOf returns the values of a metric. Trials without a value are left out.
func valuesOf(trials []*validity.Graded, metric string) []float64 {
	var values []float64
	for _, j := range trials {
		if v, ok := j.Metrics.Values[metric]; ok {
			values = append(values, v)
		}
	}
	return values
}

// groups assigns the trials to cells. The cells of the design come first, in the design's order, followed by
// other cells that have trials.
func groups(run *record.Run, trials []*validity.Graded) []*group {
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
	skipped := map[string]bool{} // leave out skipped cells, which are listed with their reasons
	for _, s := range skippedCells(run, trials) {
		skipped[s.Factors.Key()] = true
	}

	for _, f := range run.Design.Cells {
		if !skipped[f.Key()] {
			add(f)
		}
	}

	idle := map[string][]*validity.Graded{}
	verify := map[string][]*validity.Graded{}
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
		g.idle = idle[path]
		g.verify = verify[path]
	}

	return out
}

// skippedCells returns the cells that the design or the lab skipped. It leaves out cells with a trial,
// because a resumed run may be able to measure a cell that it skipped at first.
func skippedCells(run *record.Run, trials []*validity.Graded) []record.Skipped {
	measured := map[string]bool{}
	for _, j := range trials {
		if j.Trial.Row.OfCell() {
			measured[j.Trial.Row.Factors.Key()] = true
		}
	}

	all := slices.Concat(run.Design.Skipped, run.Skipped)
	return orEmpty(slices.DeleteFunc(all, func(s record.Skipped) bool { return measured[s.Factors.Key()] }))
}

// identified returns skipped cells with their ids and with labels that no other cell has.
func identified(c *factor.Catalogue, all []record.Skipped, cells []record.Factors) []record.Skipped {
	var skipped []record.Factors
	for _, s := range all {
		skipped = append(skipped, s.Factors)
	}

	names := Labels(c, slices.Concat(skipped, cells))
	for i := range all {
		all[i].ID = all[i].Factors.ID()
		all[i].Label = names[i]
	}

	return all
}

// summariseCell sets the metrics, the missing metrics, the ceiling and the consistency.
func (g *group) summariseCell(run *record.Run, declarations []record.Metric) {
	c := &g.cell
	good := g.good()
	c.Metrics = map[string]statistics.Value{}
	c.Missing = map[string]string{}
	if len(good) == 0 {
		return
	}

	if factor.Sends(g.factors) {
		g.summariseLatency(good)
	}

	for _, m := range declarations {
		if strings.HasPrefix(m.Name, "rtt_idle_") || strings.HasPrefix(m.Name, "rtt_loaded_") {
			continue
		}

		from := good
		// If the trials have no idle power, it may have been measured with the idle path.
		if m.Name == metrics.PowerIdle && len(valuesOf(good, m.Name)) == 0 {
			from = append(slices.Clone(good), validity.LastGood(g.idle)...)
		}

		values := valuesOf(from, m.Name)
		why := ""
		for _, j := range from {
			why = cmp.Or(j.Metrics.Missing[m.Name], why)
		}

		switch {
		case len(values) > 0:
			c.Metrics[m.Name] = statistics.Summarise(values)
		case why != "":
			c.Missing[m.Name] = why
		}

		n := len(values)
		if n > 0 && n < len(good) && m.Name != metrics.PowerIdle {
			g.caveat("partly-missing", fmt.Sprintf("%s: known in %d of %d trials (%s)", m.Label, n,
				len(good), why))
		}
	}

	if v, ok := c.Metrics[metrics.Consistency]; ok {
		r := statistics.Median(v.Values)
		c.Consistency = &Consistency{Word: statistics.ConsistencyWord(r), Ratio: r}
	}

	g.addCeiling(run)
	g.addWideInterval(run)
}

// addWideInterval adds a caveat if the interval of a cell's rate is still too wide after all runs that an
// adaptive plan allows.
func (g *group) addWideInterval(run *record.Run) {
	a := run.Design.Method.Adaptive
	v, ok := g.cell.Metrics[metrics.RateOf(g.factors)]
	done := map[string]bool{} // ids of the rows that were run, including failed attempts
	for _, j := range g.trials {
		done[j.Trial.Row.ID] = true
	}

	if a == nil || !ok || len(done) < a.Max || statistics.Narrow(v.Values, a.Width, a.Min) {
		return
	}

	g.caveat("interval-not-reached",
		fmt.Sprintf("after %d runs, the most that the plan allows, the interval "+
			"is %s of the median, not %s", len(done), unit.Percent((v.High-v.Low)/v.Median),
			unit.Percent(a.Width)))
}

func (g *group) addCeiling(run *record.Run) {
	c := &g.cell
	if !factor.Sends(g.factors) {
		return
	}

	ceil := validity.CeilingOf(run, g.factors)
	c.Ceiling = CellCeiling{Kind: ceil.Kind, Bps: ceil.Bps, HeaderEfficiency: ceil.Efficiency}
	if v, ok := c.Metrics[metrics.Goodput]; ok && ceil.Bps > 0 {
		c.Ceiling.Ratio = v.Median / ceil.Bps
	}
}

// addTester compares the cell with the tester's ceiling. A cell with a tunnel is compared with the control
// cell (same tunnel, no router), if the plan has one.
func (g *group) addTester(run *record.Run, all []*group) {
	c := &g.cell
	metric := validity.TesterMetric(g.factors)
	v, ok := c.Metrics[metric]
	if !ok || !factor.Sends(g.factors) {
		return
	}

	kind, top := validity.TesterCeiling(run, g.factors)
	if !factor.Tunnel.Is(g.factors, "", factor.NoTunnel) {
		kind = ""
		top = 0
		for _, other := range all {
			if found, ok := other.cell.Metrics[metric]; ok && other != g &&
				validity.ControlOf(other.factors, g.factors) {
				kind = "control cell, " + other.cell.Label
				top = found.Median
			}
		}
	}

	if top <= 0 {
		return
	}

	value := v.Median
	c.Ceiling.TesterKind = kind
	c.Ceiling.TesterRatio = value / top
	if !run.NearShares() && top < 1.2*value {
		g.doubt(evidence.Reason{
			Kind: evidence.ReasonTesterLimited,
			Text: fmt.Sprintf("the tester alone (%s) is less than 1.2 times as fast", kind),
		})
	}
}

// Labels returns a short label for each cell. The label consists of the factors that vary among the cells, so
// that a chart's legend does not repeat the same words. No label is empty.
func Labels(c *factor.Catalogue, cells []record.Factors) []string {
	varying := varyingFactors(c, cells)
	var out []string
	count := map[string]int{}
	for _, f := range cells {
		label := labelOf(c, f, varying)
		out = append(out, label)
		count[label]++
	}

	for i, f := range cells {
		if count[out[i]] > 1 { // use all factors, because the label is not unique
			out[i] = labelOf(c, f, nil)
		}

		out[i] = cmp.Or(strings.TrimSpace(out[i]), "no factors")
	}

	return out
}

// varyingFactors returns the factors that have more than one level among the cells with a load, or among the
// other cells. A missing factor counts as a separate level, unless it depends on another factor.
func varyingFactors(c *factor.Catalogue, cells []record.Factors) map[string]bool {
	varying := map[string]bool{}
	names := record.Factors{}
	for _, f := range cells {
		maps.Copy(names, f)
	}

	for name := range names {
		loads := map[string]bool{}
		others := map[string]bool{}
		for _, f := range cells {
			level, ok := f[name]
			switch {
			case !ok && c.Of(name).Dependent:
			case factor.Sends(f):
				loads[level] = true
			default:
				others[level] = true
			}
		}

		if len(loads) > 1 || len(others) > 1 {
			varying[name] = true
		}
	}

	return varying
}

// labelOf returns a label made of the factors that show selects, or of all factors if show is nil. The
// leading factors come first, without their names. The other factors follow with their names, unless they are
// off or follow from another factor. If no factor remains, the label consists of the leading factors without
// the lab's topology.
func labelOf(c *factor.Catalogue, f record.Factors, show map[string]bool) string {
	shown := func(name string) bool { return show == nil || show[name] }
	names := f.Names()
	c.Sort(names)
	var leading, others, always []string
	for _, name := range names {
		switch d, level := c.Of(name), f[name]; {
		case d.Leading && level != "":
			if shown(name) {
				leading = append(leading, d.Label(level))
			}

			if !d.Quiet {
				always = append(always, d.Label(level))
			}
		case shown(name) && !d.Leading && level != factor.Off && !(d.Says.In(f) && shown(string(d.Says))):
			others = append(others, name)
		}
	}

	slices.Sort(others)
	for i, name := range others {
		others[i] = c.Of(name).Label(f[name])
	}

	if len(leading)+len(others) == 0 {
		leading = always
	}

	return strings.Join(append(leading, others...), " · ")
}
