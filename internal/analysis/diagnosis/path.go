package diagnosis

import (
	"cmp"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Stage is a part of the path, with the utilisation of its capacity. Stages are in the order in which packets
// from the near end pass them.
type Stage struct {
	Node    string `json:"node,omitempty"`    // absent for a link
	Element string `json:"element,omitempty"` // core, device or other part of the node; for a link, its name
	Label   string `json:"label"`
	// Utilisation is a share of the quantity that Of describes. If it is unknown, it is absent and Why gives
	// the reason.
	Utilisation *float64 `json:"utilisation,omitempty"`
	Of          string   `json:"of,omitempty"`
	Why         string   `json:"why,omitempty"`
	Choke       bool     `json:"choke,omitempty"` // the first cause is at this stage
}

// Spent reports whether the stage's utilisation grows with the rate and cannot exceed 1. The busy share of a
// core or a link is an example. If a machine runs several nodes, only all its cores together count, because
// work moves between cores.
func (s Stage) Spent() bool {
	switch s.Label {
	case sending, receiving, allCores:
		return true
	case busiest:
		return s.Node != record.HostNode
	}
	return s.Link()
}

// Link reports whether the stage is a link between two nodes.
func (s Stage) Link() bool { return s.Node == "" }

// stageAt returns a stage with its utilisation.
func stageAt(at place, label string, share float64, of string) Stage {
	return Stage{Node: at.Node, Element: at.Element, Label: label, Utilisation: &share, Of: of}
}

// unknownStage returns a stage whose utilisation is unknown.
func unknownStage(at place, label, why string) Stage {
	return Stage{Node: at.Node, Element: at.Element, Label: label, Why: why}
}

// Path returns the stages of the trial: both ends, the links, and for each router its cores, tables and port
// queues. The cores of the machine that runs the nodes come last.
func (o *Observation) Path() []Stage {
	t := o.Topology()
	if len(t.Links) == 0 {
		return nil
	}

	out := o.stagesOf(t.Near)
	for _, l := range t.Links { // links are in the order from near to far
		out = append(append(out, o.linkStage(l)), o.stagesOf(l.Ends[1].Node)...)
	}

	if o.Shared() || len(o.Cores(record.HostNode)) > 0 {
		out = append(out, o.coreStages(record.HostNode)...)
	}

	return out
}

// linkStage returns the utilisation of a link, if the path's limit applies to that link or to all.
func (o *Observation) linkStage(l record.TopoLink) Stage {
	at := place{Element: l.Name}
	_, of, one := strings.Cut(o.Line.Kind, " on ")
	for _, p := range l.Ends {
		one = one && of != p.Node+"/"+p.Port
	}

	if got, ok := o.Metric(metrics.Goodput); ok && o.Line.Value > 0 && !one {
		return stageAt(at, l.Name, got/o.Line.Value, "what "+o.Line.Kind+" can carry")
	}

	return unknownStage(at, l.Name, "the rate of this link is not known")
}

// stagesOf returns the stages of a node: the load generator of an end, the forwarding parts of a router.
func (o *Observation) stagesOf(node string) (out []Stage) {
	if slices.Contains(o.Routers(), node) {
		out = o.routerStages(node)
	}

	if o.Topology().Ends(node) {
		out = append(out, o.generatorStage(node))
	}

	if o.Run.Node(node).OwnCPUs() {
		out = append(out, o.coreStages(node)...)
	}

	if len(out) == 0 {
		return []Stage{unknownStage(place{Node: node}, "forwarding", "it runs on the host's cores")}
	}

	return out
}

// generatorStage returns the utilisation of the busiest thread of an end's load generator.
func (o *Observation) generatorStage(node string) Stage {
	at := place{node, "generator"}
	role := sending
	_, receiver := o.Ends()
	if receiver == node {
		role = receiving
	}

	if o.Traffic != nil {
		if share, _, ok := o.threadUse(node); ok {
			return stageAt(at, role, share, "one core (busiest thread)")
		}
	}

	return unknownStage(at, role, "the engine does not report its threads' CPU time")
}

// Labels of the resources of stages.
const (
	busiest   = "busiest core"
	allCores  = "all cores"
	sending   = "sender"
	receiving = "receiver"
)

// coreStages returns the busy shares of a node's busiest core and of all its cores, and the largest share of
// one core that softirqs used.
func (o *Observation) coreStages(node string) []Stage {
	s, why := o.systemAt(node)
	if why != "" {
		return []Stage{unknownStage(place{node, "cpu"}, busiest, why)}
	}

	out := []Stage{stageAt(s.at(s.Full.Name), busiest, s.Full.Busy, "its time")}
	if len(s.Cores) > 1 {
		out = append(out, stageAt(s.at("cpu"), allCores, s.mean(), "their time"))
	}

	if s.Full.Unclassified > 0 {
		return append(out, unknownStage(s.at(s.Full.Name), "softirq",
			"the "+node+" does not report what its cores work on"))
	}

	soft := slices.MaxFunc(s.Cores, func(a, b Core) int {
		return cmp.Compare(a.Softirq+a.IRQ, b.Softirq+b.IRQ)
	})
	return append(out, stageAt(s.at(soft.Name), "softirq", soft.Softirq+soft.IRQ, "one core"))
}

// routerStages returns the share of the window in which packets waited in each queue of a router, and the
// utilisation of its connection tracking table, if it tracks connections.
func (o *Observation) routerStages(node string) (out []Stage) {
	columns, _ := o.Columns(node, "qdisc", "qlen_packets")
	for _, c := range columns {
		if o.tunnel() == "" && !o.isPort(node, c.Label) {
			continue // packets of this load do not pass this tunnel's device
		}

		if share, ok := c.waited(); ok {
			out = append(out, stageAt(place{node, c.Label}, "queue "+c.Label, share,
				"the samples had packets queued"))
		}
	}

	entries, _ := o.level(node, "conntrack", "entries")
	limit, _ := o.level(node, "conntrack", "max")
	if entries > 0 && limit > 0 {
		out = append(out, stageAt(place{node, "conntrack"}, "conntrack table", entries/limit, "its limit"))
	}

	return out
}

// waited returns the share of the samples in the window at which the queue held packets.
func (c Column) waited() (share float64, ok bool) {
	var waited, all float64
	for i, at := range c.curve.T {
		if c.w.Holds(at) {
			all++
			waited += yes(c.curve.V[i] > 0)
		}
	}
	return ratio(waited, all), all > 0
}

// Place combines the stages of a cell's trials, each with the median of its utilisations, and marks the stage
// of the first cause.
func (d *Diagnosis) Place(trials [][]Stage) {
	type key struct{ node, label string }
	values := map[key][]float64{}
	for _, stages := range trials {
		if len(stages) > len(d.Path) {
			d.Path = slices.Clone(stages)
		}

		for _, s := range stages {
			if s.Utilisation != nil {
				k := key{s.Node, s.Label}
				values[k] = append(values[k], *s.Utilisation)
			}
		}
	}

	for i, s := range d.Path {
		all := values[key{s.Node, s.Label}]
		if len(all) > 0 {
			d.Path[i].Utilisation = new(statistics.Median(all))
			d.Path[i].Why = ""
		}
	}

	if d.Named() {
		d.mark(d.Causes[0])
	}
}

// mark marks the stage of a cause. It adds a stage if none matches.
func (d *Diagnosis) mark(c Cause) {
	if c.Node == "" && c.Element == "" {
		return // the cause is the whole path, or has no place on it
	}

	onLink := c.Node == "" || c.Class == LinkRate
	for _, is := range []func(Stage) bool{
		func(s Stage) bool { return s.Node == c.Node && s.Element == c.Element },
		func(s Stage) bool { return onLink && s.Link() && s.Element == c.Element },
		// With a single core, the busiest core is the whole CPU.
		func(s Stage) bool { return s.Node == c.Node && s.Label == busiest && c.Element == "cpu" },
	} {
		i := slices.IndexFunc(d.Path, is)
		if i >= 0 {
			d.Path[i].Choke = true
			return
		}
	}

	end := len(d.Path)
	for i, s := range slices.Backward(d.Path) {
		if s.Node == c.Node {
			end = i + 1
			break
		}
	}

	s := unknownStage(c.place(), strings.ReplaceAll(c.Class, "-", " "), "")
	s.Choke = true
	if len(c.Facts) > 0 {
		s.Why = c.Facts[0].Text
	}

	d.Path = slices.Insert(d.Path, end, s)
}
