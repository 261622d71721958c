package analysis

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/comparison"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/validity"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Derive computes the document of a run from its stored data: the numbers of each trial, grades, cells,
// comparisons, thresholds, the cost of observing, and the summary. Derived data is never stored, so a newer
// version can compute more from an old run.
func Derive(run record.Run, trials []record.Trial) *Document {
	d := Begin(run, len(trials))
	for _, t := range trials {
		d.Add(t)
	}
	return d.Document()
}

// Derivation builds a document from trials that are added one by one. It keeps no data that grows with a
// trial's length.
type Derivation struct {
	run    record.Run
	points int // maximum number of points of a chart
	all    []*validity.Graded
	kept   map[*validity.Graded]kept
	idle   map[string]map[int]map[string]float64 // idle measurements by path, block and metric

	sampled []TrialSamples
}

// kept holds what a derivation keeps of a trial's samples.
type kept struct {
	chart  *Series
	memory map[string]memoryUse // by node; only of a soak
	causes *examined            // nil if the trial was not diagnosed
}

// Begin starts the document of a run with the given number of trials. The trials may be added in any order.
// However, the diagnosis of a load uses only idle measurements that were added before it, so they should be
// added in the order of the run.
func Begin(run record.Run, trials int) *Derivation {
	return &Derivation{
		run:    run,
		kept:   map[*validity.Graded]kept{},
		idle:   map[string]map[int]map[string]float64{},
		points: min(chartPoints, max(chartPoints*manyTrials/max(trials, 1), minPoints)),
	}
}

// Add computes the numbers and the grade of a trial.
func (x *Derivation) Add(t record.Trial) {
	t = withImports(&x.run, t)
	j := validity.GradeTrial(&x.run, &t)
	var k kept
	if j.Grade != evidence.GradeFailed {
		k.chart = chart(j.Trial, j.Metrics.RTTs, x.points)
		if j.Trial.Row.Kind == record.RowIdle {
			x.keepIdle(j)
		}
	}

	if diagnosable(j) || failedOnPath(j) {
		o := Observe(&x.run, j)
		o.Idle = x.idleOf(j)
		k.causes = examine(o)
	}

	if j.Grade != evidence.GradeFailed && j.Trial.Row.OfCell() {
		rate := j.Metrics.Values[metrics.RateOf(j.Trial.Row.Factors)]
		x.sampled = append(x.sampled, samplesOf(j.Trial, rate))
	}

	light := j.Trial.Light()
	light.Nodes = map[string]record.NodeData{}
	for name, n := range j.Trial.Nodes {
		light.Nodes[name] = record.NodeData{Cost: n.Cost}
	}

	if x.run.Design.Method.Soak > 0 {
		k.memory = map[string]memoryUse{}
		for node := range j.Trial.Nodes {
			k.memory[node] = memoryUsed(j.Trial, node)
		}
	}

	j.Trial = &light
	x.all = append(x.all, j)
	x.kept[j] = k
}

// Caveat adds a caveat about the run.
func (x *Derivation) Caveat(c record.Caveat) { x.run.Caveats = append(x.run.Caveats, c) }

// Document computes the document from the trials that were added.
func (x *Derivation) Document() *Document {
	run := &x.run
	all := x.all
	validity.Sort(all)
	aside := validity.SetAside(all)
	for _, j := range aside {
		delete(x.kept, j)
	}

	if len(aside) > 0 {
		x.Caveat(record.Caveat{
			Kind: "other-boots",
			Text: fmt.Sprintf("%d trials are set aside: a router "+
				"was booted anew in the middle of the run, and nothing is concluded of two boots together",
				len(aside)),
		})
	}

	cells := groups(run, all)
	declarations := metrics.Metrics()
	readSearches(run, cells)
	var factors []record.Factors
	for _, g := range cells {
		factors = append(factors, g.factors)
		g.addAdded()
		c := &g.cell
		c.ID = g.factors.ID()
		c.Factors = g.factors
		c.Blocks = g.blocks()
		c.Findings = []evidence.Finding{}
		c.Runs = len(g.good())
		c.Caveats, c.Failed = validity.GradeCell(&c.Cell, g.good(), g.trials, g.verify,
			"the run "+validity.StatusWords(run))
		g.summariseCell(run, declarations)
		g.addResolved()
		g.addFindings()
		g.clockCaveat()
		g.addIrregular()
		g.diagnose(run, x.kept)
	}

	catalogue := run.Design.Catalogue
	for i, label := range Labels(catalogue, factors) {
		cells[i].cell.Label = label
	}

	var sides []*metrics.Cell
	for _, g := range cells {
		g.addTester(run, cells)
		sides = append(sides, &g.cell.Cell)
	}

	varying := varyingFactors(catalogue, factors)
	d := &Document{
		Format:      record.Format,
		Run:         head(run),
		Catalogue:   catalogue,
		Series:      run.Series,
		Environment: orEmpty(merged(run.Environments)),
		Conditions:  run.Design.Conditions,
		Topologies:  orEmpty(run.Topologies),
		Ways:        ways(run),
		Nodes:       nodes(run),
		Skipped:     identified(catalogue, skippedCells(run, all), factors),
		Tester:      run.Ceilings,
		Ciphers:     cipherNodes(run, cells),
		UnderLoad:   underLoad(catalogue, cells, varying),
		Comparisons: comparison.OfCells(sides, &run.Design),
		Observing:   observing(all),
		Trials:      []TrialView{},
		Cells:       []Cell{},
		Sampled:     x.sampled,
	}
	var runs []int
	for _, g := range cells {
		d.Cells = append(d.Cells, g.cell)
		runs = append(runs, g.cell.Runs)
	}

	addShares(&run.Design, d.Cells, d.Comparisons)
	d.Paths = paths(d, varying)
	d.oneCause()
	d.addSearches(run, cells)
	d.Scaling = scalings(catalogue, cells, varying)
	d.Soaks = soaks(run, cells, x.kept)
	for _, j := range all {
		d.Trials = append(d.Trials, view(j, x.kept[j].chart))
	}

	d.Metrics = declared(declarations, d)
	d.Thresholds = comparison.Thresholds(run.Design.Requirements, sides, d.Skipped)
	d.Caveats = validity.Caveats(run, all, runs, factors)
	d.Proof = proofOf(run, cells)
	d.Effects = EffectsOf(d)
	d.Verdicts = Verdicts(d.Cells)
	d.Summary = summary(run, d)
	d.Uses = UsesOf(d)
	return d
}

// nodes returns the facts about the nodes of all topologies, and about the machine that runs them, if any.
func nodes(run *record.Run) []record.NodeFacts {
	out := []record.NodeFacts{}
	for _, t := range run.Topologies {
		for _, n := range t.Nodes {
			if !slices.ContainsFunc(out, func(have record.NodeFacts) bool { return have.Name == n.Name }) {
				out = append(out, run.Node(n.Name))
			}
		}
	}
	return out
}

func orEmpty[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

func head(run *record.Run) RunHead {
	return RunHead{
		RunHead:     run.RunHead,
		Plan:        run.Design.Name,
		Description: description(run),
		Procedure:   run.Design.Procedure,
	}
}

// addResolved sets the resolved properties of the cell, such as the kind of WireGuard. If trials differ in a
// property, it lists all values.
func (g *group) addResolved() {
	g.cell.Resolved = map[string]string{}
	for _, j := range g.good() {
		for k, v := range j.Trial.Resolved {
			old, seen := g.cell.Resolved[k]
			if !seen {
				g.cell.Resolved[k] = v
			} else if !strings.Contains(old, v) {
				g.cell.Resolved[k] = old + ", " + v
			}
		}
	}
}

// view converts a graded trial to the form in the document. A failed trial has no numbers.
func view(j *validity.Graded, series *Series) TrialView {
	t := j.Trial
	v := TrialView{
		TrialHead:  t.TrialHead,
		Row:        t.Row.ID,
		Assignment: t.Row.Assignment,
		Seconds:    float64(t.Ended-t.Origin) / 1e9,
		Grade:      j.Grade,
		Reasons:    j.Reasons,
		Unchecked:  j.Unchecked,
	}
	if t.Traffic != nil {
		v.Caveats = slices.Concat(t.Caveats, t.Traffic.Caveats)
	}

	v.Phases = make([]record.Phase, 0, len(t.Phases))
	for _, p := range t.Phases {
		v.Phases = append(v.Phases, record.Phase{
			Name:  p.Name,
			Start: p.Start - t.Origin,
			End:   p.End - t.Origin,
		})
	}

	if j.Grade == evidence.GradeFailed {
		return v
	}

	v.Metrics = j.Metrics.Values
	v.Missing = j.Metrics.Missing
	v.Series = series
	return v
}

// declared returns the declarations of the metrics that occur in the document.
func declared(all []record.Metric, d *Document) []record.Metric {
	used := map[string]bool{}
	for _, c := range d.Cells {
		for name := range c.Metrics {
			used[name] = true
		}

		for name := range c.Missing {
			used[name] = true
		}
	}

	for _, t := range d.Trials {
		for name := range t.Metrics {
			used[name] = true
		}
	}

	return orEmpty(pick(all, used))
}

// pick returns the declarations of the used metrics, without duplicates.
func pick(declared []record.Metric, used map[string]bool) []record.Metric {
	var out []record.Metric
	for _, m := range declared {
		if used[m.Name] {
			out = append(out, m)
			delete(used, m.Name)
		}
	}
	return out
}

// fastProbes lists the probes that are read ten times per second.
var fastProbes = map[string]bool{"cpu": true, "softirq": true, "softnet": true, "netdev": true, "qdisc": true}

// observing returns the CPU time that observing took in all trials.
func observing(trials []*validity.Graded) Observing {
	o := Observing{Probes: map[string]float64{}}
	type key struct{ node, probe string }
	type total struct{ own, charged, over float64 }
	spent := map[key]total{}
	for i := range trials {
		for node, n := range trials[i].Trial.Nodes {
			for _, c := range n.Cost {
				k := key{node, c.Probe}
				t := spent[k]
				own := c.CPUNs // no better value is known for the process of a driver
				if c.MedianNs > 0 {
					own = min(c.MedianNs*c.Reads, own)
				}

				t.own += float64(own)
				t.charged += float64(c.CPUNs)
				t.over += float64(c.OverNs)
				spent[k] = t
			}
		}
	}

	fast := map[string]float64{}
	for _, k := range slices.SortedFunc(maps.Keys(spent), func(a, b key) int {
		return cmp.Compare(a.node+"/"+a.probe, b.node+"/"+b.probe)
	}) {
		t := spent[k]
		if t.over <= 0 {
			continue
		}

		o.CoreRatio += t.own / t.over
		o.ChargedRatio += t.charged / t.over
		o.Probes[k.probe] += t.own / t.over
		if fastProbes[k.probe] {
			fast[k.probe] = max(fast[k.probe], t.own/t.over)
		}
	}

	for _, probe := range slices.Sorted(maps.Keys(fast)) {
		o.FastRatio += fast[probe]
	}

	return o
}

// actsAsRouter is the beginning of a plan's description if a namespace of this machine is the plan's router.
const actsAsRouter = "this machine acting as a router"

// description returns the plan's description, adapted to the router that the run tested.
func description(run *record.Run) string {
	text := run.Design.Description
	tested := run.Tested()
	if tested.CPUs == record.CPUsShared || len(text) < len(actsAsRouter) ||
		!strings.EqualFold(text[:len(actsAsRouter)], actsAsRouter) {
		return text
	}

	subject := "A virtual router"
	rest := text[len(actsAsRouter):]
	switch {
	case run.Between():
		subject = "What lies between two machines"
		rest = strings.Replace(rest, "between two others", "between them", 1)
	case tested.CPUs == record.CPUsEmulated:
		subject = "An emulated router"
	case tested.OwnMachine():
		subject = "A router"
	}

	return subject + rest
}
