package diagnosis

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// nodes returns the names of the sampled nodes, sorted.
func (o *Observation) nodes() []string { return slices.Sorted(maps.Keys(o.Nodes)) }

// ends returns the first and the last value in the window.
func (c Column) ends() (first, last float64) {
	found := false
	for i, t := range c.curve.T {
		if !c.w.Holds(t) {
			continue
		}

		last = c.curve.V[i]
		if !found {
			first, found = last, true
		}
	}
	return first, last
}

// Observation holds the data of one trial that rules read, and reference values to compare it with.
type Observation struct {
	*record.Trial
	Run     *record.Run
	Metrics *metrics.Measured
	Reasons []evidence.Reason      // reasons given by the validity gate
	Line    Limit                  // rate limit of the path, stated or detected
	Tester  Limit                  // rate that the tester reaches with this load without the router
	Idle    map[string]float64     // metrics of the idle path, if measured
	ledger  *Ledger                // cache of the method Ledger
	columns map[[3]string][]Column // cache of the method Columns
}

// Limit is an upper bound of a metric. A Value of 0 means that it is unknown.
type Limit struct {
	Kind   string // description of a path's limit, such as "tbf 300M on router/wan"
	Metric string // metric that the tester's limit bounds, such as goodput_bps or flows_per_s
	Value  float64
}

// Metric returns a metric of the trial.
func (o *Observation) Metric(name string) (float64, bool) {
	v, ok := o.Metrics.Values[name]
	return v, ok
}

// value returns a metric of the trial, or 0 if it is missing.
func (o *Observation) value(name string) float64 { return o.Metrics.Values[name] }

// goodput returns the goodput in bit/s, or 0 if it is missing.
func (o *Observation) goodput() float64 { return o.value(metrics.Goodput) }

// idle returns a metric of the idle path: from the trial itself or, failing that, from measurements of the
// path.
func (o *Observation) idle(name string) (float64, bool) {
	if v, ok := o.Metric(name); ok {
		return v, true
	}

	v, ok := o.Idle[name]
	return v, ok
}

// IsTCP reports whether the load is TCP.
func (o *Observation) IsTCP() bool { return o.load().Protocol == "tcp" }

func (o *Observation) load() record.Load {
	if o.Traffic == nil { // the trial failed
		return record.Load{Direction: o.Factor(factor.Direction)}
	}
	return o.Traffic.Load
}

// Factor returns the level of a factor in the trial.
func (o *Observation) Factor(name factor.Name) string { return name.Of(o.Row.Factors) }

// Topology returns the trial's topology. If the run has no topology, the result contains only the names of
// the ends.
func (o *Observation) Topology() *record.Topology {
	return cmp.Or(metrics.TopologyOf(o.Run, o.Row.Factors),
		&record.Topology{Near: "client", Far: "server"})
}

// Routers returns the routers under test, from near to far.
func (o *Observation) Routers() []string { return o.Topology().Routers }

// Ends returns the sender and the receiver of the load. For a load in both directions, the near end counts as
// the sender.
func (o *Observation) Ends() (sender, receiver string) {
	near, far := o.nearFar()
	if o.load().Direction == record.Down {
		return far, near
	}
	return near, far
}

// bothWays reports whether the load sends in both directions.
func (o *Observation) bothWays() bool { return o.load().Direction == record.Both }

// nearFar returns the near and the far end, whatever the load's direction.
func (o *Observation) nearFar() (near, far string) {
	t := o.Topology()
	return t.Near, t.Far
}

// Column is one labelled series of a probe.
type Column struct {
	Label string // such as "cpu0" or "wan"; "" for the whole node
	curve statistics.Curve
	w     record.Window
}

// Columns returns the series of a probe's stem at a node. Callers must not change them. If there are none,
// why is the reason.
func (o *Observation) Columns(node, probe, stem string) (columns []Column, why string) {
	key := [...]string{node, probe, stem}
	columns, known := o.columns[key]
	if known {
		return columns, ""
	}

	table, why := metrics.SamplesOf(o.Nodes[node], probe)
	if table == nil {
		return nil, why
	}

	w := o.Window
	if w.End == 0 && len(table.T) > 0 { // the trial failed before its window began: use all samples
		w.Start, w.End = table.T[0], table.T[len(table.T)-1]
	}

	for _, c := range metrics.ColumnsOf(table, stem) {
		columns = append(columns, Column{c.Label, c.Curve, w})
	}

	if len(columns) == 0 {
		return nil, "probe " + probe + " of " + node + " has no " + stem
	}

	if o.columns == nil {
		o.columns = map[[3]string][]Column{}
	}

	o.columns[key] = columns
	return columns, ""
}

// columnAt returns the series at a place, or an empty one if there is none.
func (o *Observation) columnAt(at place, probe, stem string) (found Column) {
	columns, _ := o.Columns(at.Node, probe, stem)
	for _, c := range columns {
		if c.Label == at.Element {
			found = c
		}
	}
	return found
}

// Grew returns the growth of a counter in the window.
func (c Column) Grew() (float64, bool) { return c.curve.Moved(c.w.Start, c.w.End) }

// GrewIn is like Grew for a part of the window. from and to are shares of the window's length.
func (c Column) GrewIn(from, to float64) (float64, bool) {
	span := float64(c.w.End - c.w.Start)
	return c.curve.Moved(c.w.Start+int64(from*span), c.w.Start+int64(to*span))
}

// grewBefore returns the growth of a counter from the first sample, before the load started, to the start of
// the window.
func (c Column) grewBefore() float64 {
	if len(c.curve.T) == 0 {
		return 0
	}

	n, _ := c.curve.Moved(c.curve.T[0], c.w.Start)
	return n
}

// Mean returns the mean of a gauge in the window, and Largest its maximum.
func (c Column) Mean() (float64, bool) { return c.curve.Mean(c.w.Start, c.w.End) }

func (c Column) Largest() (float64, bool) { return c.curve.Largest(c.w.Start, c.w.End) }

// sum returns the growth of counters at a place, summed over the words of stems. Without an element, it sums
// all labels of the node. why is the reason if no counter covers the window.
func (o *Observation) sum(at place, probe, stems string) (sum float64, why string) {
	return o.sumOf(at.Node, probe, func(label string) bool {
		return at.Element == "" || label == at.Element
	}, stems)
}

// total is like sum, but returns 0 if no counter covers the window.
func (o *Observation) total(at place, probe, stems string) float64 {
	sum, _ := o.sum(at, probe, stems)
	return sum
}

// sumOf is like sum, but keep selects the labels.
func (o *Observation) sumOf(node, probe string, keep func(label string) bool, stems string) (sum float64,
	why string) {
	covered := false
	for stem := range strings.FieldsSeq(stems) {
		columns, lacks := o.Columns(node, probe, stem)
		why = cmp.Or(lacks, "the samples of probe "+probe+" of "+node+" do not cover the window")
		for _, c := range columns {
			if v, ok := c.Grew(); ok && keep(c.Label) {
				sum += v
				covered = true
			}
		}
	}

	if covered {
		why = ""
	}

	return sum, why
}

// Core splits the window of one core of a node into shares.
type Core struct {
	Name         string  `json:"name"`
	Busy         float64 `json:"busy_ratio"`
	User         float64 `json:"user_ratio"`
	System       float64 `json:"system_ratio"`
	IRQ          float64 `json:"irq_ratio"`
	Softirq      float64 `json:"softirq_ratio"`
	Unclassified float64 `json:"unclassified_ratio,omitempty"` // work of a kind that the node does not report
}

// Cores returns the cores of a node, or none if the node has no CPU samples.
func (o *Observation) Cores(node string) (out []Core) {
	columns, _ := o.Columns(node, "cpu", "idle_ns")
	for _, c := range columns {
		if !strings.HasPrefix(c.Label, "cpu") || c.Label == "cpu" {
			continue
		}

		all := 1.0
		of := func(stems string) float64 {
			return max(o.total(place{node, c.Label}, "cpu", stems), 0) / all
		}
		all = of("user_ns nice_ns system_ns irq_ns softirq_ns unclassified_ns idle_ns iowait_ns steal_ns")
		if all <= 0 {
			continue
		}

		core := Core{
			Name:         c.Label,
			User:         of("user_ns nice_ns"),
			System:       of("system_ns"),
			IRQ:          of("irq_ns"),
			Softirq:      of("softirq_ns"),
			Unclassified: of("unclassified_ns"),
		}
		core.Busy = core.User + core.System + core.IRQ + core.Softirq + core.Unclassified
		out = append(out, core)
	}
	return out
}

// Shared reports whether all roles share this machine's cores. If so, a busy core belongs to no single role.
func (o *Observation) Shared() bool { return o.Run.Tested().CPUs == record.CPUsShared }

// Fact is a number, with a text, that supports or contradicts a candidate.
type Fact = evidence.Evidence

// factList holds the facts about a candidate.
type factList = []Fact

// fact returns a fact whose text is formatted with args or, without args, with the value.
func fact(metric, node, element string, value float64, text string, args ...any) Fact {
	if len(args) == 0 && strings.Contains(text, "%") {
		args = []any{value}
	}
	return Fact{
		Metric:  metric,
		Node:    node,
		Element: element,
		Value:   &value,
		Text:    say(text, args...),
	}
}

// against returns the fact with a baseline to compare with.
func against(e Fact, baseline float64) Fact {
	e.Baseline = &baseline
	return e
}

// excluded returns an excluded candidate, with the facts that exclude it.
func excluded(by ...Fact) Candidate {
	j := Candidate{Score: absent}.facts(by...)
	if len(by) > 0 {
		j.Against = &by[0]
	}
	return j
}

// missing returns a candidate that could not be examined, with the reason.
func missing(why string) Candidate { return Candidate{NotExamined: why} }
