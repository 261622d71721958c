package diagnosis

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Stage is a part of the path, in the order in which packets from the near end pass it, with the utilisation
// of its capacity.
type Stage struct {
	Node    string `json:"node,omitempty"`    // absent of a link
	Element string `json:"element,omitempty"` // of the node: a core, a device; of a link, its name
	Label   string `json:"label"`
	// Utilisation is a share of Of; absent where it is not known, for the reason Why.
	Utilisation *float64 `json:"utilisation,omitempty"`
	Of          string   `json:"of,omitempty"`
	Why         string   `json:"why,omitempty"`
	Choke       bool     `json:"choke,omitempty"` // the place of the first cause
}

// Spent reports whether the stage's utilisation grows with the rate and ends it at 1: a core's time, the rate
// of a link. The cores of a machine that carries others are spent together: the work moves between them.
func (s Stage) Spent() bool {
	switch s.Label {
	case sending, receiving, allCores:
		return true
	case busiest:
		return s.Node != record.HostNode
	}
	return s.Link()
}

// Link reports whether the stage joins two nodes.
func (s Stage) Link() bool { return s.Node == "" }

// stageOf returns a stage whose utilisation is known if share is a number.
func stageOf(node, element, label string, share float64, of, why string) Stage {
	s := Stage{Node: node, Element: element, Label: label, Of: of}
	if math.IsNaN(share) {
		s.Why = why
		return s
	}
	s.Utilisation = new(share)
	return s
}

// Path lists the stages of the trial: both ends, the links, and of each router its cores, its tables and the
// queues of its ports. The cores of the machine that carries them come last.
func (o *Observation) Path() []Stage {
	t := o.Topology()
	if t == nil {
		return nil
	}
	at, out, left := t.Near, o.stagesOf(t.Near), slices.Clone(t.Links)
	touches := func(l record.TopoLink) bool { return l.Ends[0].Node == at || l.Ends[1].Node == at }
	for i := slices.IndexFunc(left, touches); i >= 0; i = slices.IndexFunc(left, touches) {
		l := left[i]
		left = slices.Delete(left, i, i+1)
		if l.Ends[0].Node == at {
			at = l.Ends[1].Node
		} else {
			at = l.Ends[0].Node
		}
		out = append(append(out, o.linkStage(l)), o.stagesOf(at)...)
	}
	if o.Shared() || len(o.Cores(record.HostNode)) > 0 {
		out = append(out, o.coreStages(record.HostNode)...)
	}
	return out
}

// linkStage returns how much of a link's rate was used, where the path's limit is stated for that link or for
// all.
func (o *Observation) linkStage(l record.TopoLink) Stage {
	share, of := math.NaN(), ""
	here := func(p record.TopoPort) bool { return strings.HasSuffix(o.Line.Kind, " on "+p.Node+"/"+p.Port) }
	if got, ok := o.Metric(metrics.Goodput); ok && o.Line.Value > 0 &&
		(!strings.Contains(o.Line.Kind, " on ") || here(l.Ends[0]) || here(l.Ends[1])) {
		share, of = got/o.Line.Value, "what "+o.Line.Kind+" can carry"
	}
	return stageOf("", l.Name, l.Name, share, of, "the rate of this link is not known")
}

// stagesOf lists the stages of a node: the load generator of an end, the forwarding parts of a router.
func (o *Observation) stagesOf(node string) []Stage {
	var out []Stage
	own := o.Run.Node(node).OwnCPUs()
	if slices.Contains(o.Routers(), node) {
		out = append(out, o.queueStages(node)...)
		if s, ok := o.tableStage(node); ok {
			out = append(out, s)
		}
	}
	if t := o.Topology(); t.Ends(node) {
		out = append(out, o.generatorStage(node))
	}
	if own {
		out = append(out, o.coreStages(node)...)
	}
	if len(out) == 0 {
		out = append(out, stageOf(node, "", "forwarding", math.NaN(), "",
			cmp.Or(o.unseen(node), "it runs on the host's cores")))
	}
	return out
}

// unseen returns the reason why nothing is known of a node.
func (o *Observation) unseen(node string) string {
	if n := o.Run.Node(node); !n.OwnCPUs() {
		return ""
	} else if n.Unreachable != "" {
		return n.Unreachable
	}
	return "nothing is watching it"
}

// generatorStage returns the busiest thread of an end's load generator.
func (o *Observation) generatorStage(node string) Stage {
	share := math.NaN()
	window := float64(o.Trial.Window.End - o.Trial.Window.Start)
	if o.Trial.Traffic != nil && window > 0 {
		for _, u := range o.Trial.Traffic.Ends {
			if u.Node == node && len(u.ThreadsNs) > 0 {
				share = float64(slices.Max(u.ThreadsNs)) / window
			}
		}
	}
	role := sending
	if _, receiver := o.Ends(); receiver == node {
		role = receiving
	}
	return stageOf(node, "generator", role, share, "one core (busiest thread)",
		"the engine does not report its threads' CPU time")
}

// Labels of the resource of a stage.
const (
	busiest   = "busiest core"
	allCores  = "all cores"
	sending   = "sender"
	receiving = "receiver"
)

// coreStages returns the busiest core of a node, and what softirqs took of one.
func (o *Observation) coreStages(node string) []Stage {
	cores := o.Cores(node)
	if len(cores) == 0 {
		_, why := o.Columns(node, "cpu", "idle_ns")
		return []Stage{stageOf(node, "cpu", busiest, math.NaN(), "",
			cmp.Or(why, "no sample covers the window"))}
	}
	busy := slices.MaxFunc(cores, func(a, b Core) int { return cmp.Compare(a.Busy, b.Busy) })
	soft := slices.MaxFunc(cores, func(a, b Core) int {
		return cmp.Compare(a.Softirq+a.IRQ, b.Softirq+b.IRQ)
	})
	out := []Stage{stageOf(node, busy.Name, busiest, busy.Busy, "its time", "")}
	if len(cores) > 1 {
		sum := 0.0
		for _, c := range cores {
			sum += c.Busy
		}
		out = append(out, stageOf(node, "cpu", allCores, sum/float64(len(cores)), "their time", ""))
	}
	if busy.Unclassified > 0 {
		return append(out, stageOf(node, busy.Name, "softirq", math.NaN(), "",
			"the "+node+" does not tell what its cores work on"))
	}
	return append(out, stageOf(node, soft.Name, "softirq", soft.Softirq+soft.IRQ, "one core", ""))
}

// queueStages returns for how much of the window packets waited in each queue of a router.
func (o *Observation) queueStages(node string) []Stage {
	columns, _ := o.Columns(node, "qdisc", "qlen_packets")
	var out []Stage
	for _, c := range columns {
		if o.tunnel() == "" && !o.isPort(node, c.Label) {
			continue // a tunnel's device, which the packets do not pass
		}
		if share, ok := c.waited(); ok {
			out = append(out, stageOf(node, c.Label, "queue "+c.Label, share,
				"the samples had packets queued", ""))
		}
	}
	return out
}

// waited returns the share of a queue's samples in the window with packets in it.
func (c Column) waited() (share float64, ok bool) {
	waited, all := 0.0, 0.0
	for i, at := range c.curve.T {
		if c.w.Holds(at) {
			if all++; c.curve.V[i] > 0 {
				waited++
			}
		}
	}
	return ratio(waited, all), all > 0
}

// tableStage returns how full the connection tracking table of a router was, if it tracks any.
func (o *Observation) tableStage(node string) (Stage, bool) {
	entries, _ := o.level(node, "conntrack", "entries")
	limit, _ := o.level(node, "conntrack", "max")
	if entries == 0 || limit <= 0 {
		return Stage{}, false
	}
	return stageOf(node, "conntrack", "conntrack table", entries/limit, "its limit", ""), true
}

// Place joins the stages of a cell's trials, each with the median of its utilisations, and marks the stage of
// the first cause.
func (d *Diagnosis) Place(trials [][]Stage) {
	type key struct{ node, label string }
	values := map[key][]float64{}
	d.Path = nil
	for _, stages := range trials {
		if len(stages) > len(d.Path) {
			d.Path = slices.Clone(stages)
		}
		for _, s := range stages {
			if s.Utilisation != nil {
				values[key{s.Node, s.Label}] = append(values[key{s.Node, s.Label}], *s.Utilisation)
			}
		}
	}
	for i, s := range d.Path {
		if all := values[key{s.Node, s.Label}]; len(all) > 0 {
			d.Path[i].Utilisation, d.Path[i].Why = new(statistics.Median(all)), ""
		}
	}
	if d.Named() {
		d.mark(d.Causes[0])
	}
}

// mark marks the stage of a cause, or adds one where none of the measured ones matches.
func (d *Diagnosis) mark(c Cause) {
	if c.Node == "" && c.Element == "" {
		return // the path as a whole, or nowhere on it
	}
	at := slices.IndexFunc(d.Path, func(s Stage) bool { return s.Node == c.Node && s.Element == c.Element })
	if at < 0 && (c.Node == "" || c.Class == LinkRate) {
		at = slices.IndexFunc(d.Path, func(s Stage) bool { return s.Link() && s.Element == c.Element })
	}
	if at < 0 && c.Element == "cpu" { // of a node with one core
		at = slices.IndexFunc(d.Path, func(s Stage) bool { return s.Node == c.Node && s.Label == busiest })
	}
	if at >= 0 {
		d.Path[at].Choke = true
		return
	}
	end := len(d.Path)
	for i, s := range slices.Backward(d.Path) {
		if s.Node == c.Node {
			end = i + 1
			break
		}
	}
	s := Stage{Node: c.Node, Element: c.Element, Label: strings.ReplaceAll(c.Class, "-", " "), Choke: true}
	if len(c.Facts) > 0 {
		s.Why = c.Facts[0].Text
	}
	d.Path = slices.Insert(d.Path, end, s)
}
