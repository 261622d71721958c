package diagnosis

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// firstRouter returns the router nearest to the near end.
func (o *Observation) firstRouter() (node, why string) {
	routers := o.Routers()
	if len(routers) > 0 {
		return routers[0], ""
	}
	return "", "the topology has no router"
}

// ownSystem returns the CPUs of the router, which must not share them with other roles.
func ownSystem(o *Observation) system {
	needs(!o.Shared(), "all roles share this machine's cores: the router has none of its own")
	return need(systemOf(o))
}

// ports returns the nodes' devices that are ports of the topology and that the netdev probe counts.
func (o *Observation) ports(nodes ...string) (out []place) {
	for _, node := range nodes {
		columns, _ := o.Columns(node, "netdev", "rx_packets")
		for _, c := range columns {
			if o.isPort(node, c.Label) {
				out = append(out, place{node, c.Label})
			}
		}
	}
	return out
}

// absent is the score of an excluded class.
const absent = -20.0

// system describes the CPUs on which a router runs, and their use in the window.
type system struct {
	Node  string // node that was sampled: the router, or the host whose cores all roles share
	Cores []Core // sorted by name; never empty
	// Busy is the busy time of all cores in the window, in cores. The others are parts of it by kind of work.
	Busy, User, Kernel, Unclassified float64

	Full  Core // busiest core
	Slack Core // least busy core
}

// systemOf returns the CPUs on which the routers run: the CPUs of the machine that all roles share, or the
// CPUs of the router with the busiest core.
func systemOf(o *Observation) (system, string) {
	if o.Shared() {
		return o.systemAt(record.HostNode)
	}

	best, why := system{}, "the topology has no router"
	for i, node := range o.Routers() {
		if s, lacks := o.systemAt(node); i == 0 || s.Full.Busy > best.Full.Busy {
			best, why = s, lacks
		}
	}

	return best, why
}

func (o *Observation) systemAt(node string) (system, string) {
	s := system{Node: node, Cores: o.Cores(node)}
	if len(s.Cores) == 0 {
		_, why := o.Columns(node, "cpu", "idle_ns")
		return s, cmp.Or(why, "the samples of probe cpu of "+node+" do not cover the window")
	}

	sorted := slices.Clone(s.Cores) // sorted stably, so that Full and Slack differ even if all are equal
	slices.SortStableFunc(sorted, func(a, b Core) int { return cmp.Compare(b.Busy, a.Busy) })
	s.Full, s.Slack = sorted[0], sorted[len(sorted)-1]
	for _, c := range s.Cores {
		s.Busy += c.Busy
		s.User += c.User
		s.Kernel += c.System
		s.Unclassified += c.Unclassified
	}

	return s, ""
}

// at returns a place on the system's node.
func (s system) at(element string) place { return place{s.Node, element} }

// spreadGain returns an upper bound of the gain from spreading the busiest core's work over all cores.
func (s system) spreadGain() float64 { return ratio(float64(len(s.Cores))*s.Full.Busy, s.Busy) }

// meanFact reports the mean busy share of the cores.
func (s system) meanFact() Fact {
	return s.at("cpu").fact("host_cpu_ratio", s.mean(),
		"all cores together were busy for %h of the window")
}

// mean returns the mean busy share of the cores.
func (s system) mean() float64 { return ratio(s.Busy, float64(len(s.Cores))) }

// of returns a possessive for the owner of the cores, such as "the router's".
func (s system) of() string {
	if s.Node == record.HostNode {
		return "this machine's"
	}
	return "the " + s.Node + "'s"
}

// softirq returns the time spent in interrupts and softirqs, in cores.
func (s system) softirq() float64 {
	sum := 0.0
	for _, c := range s.Cores {
		sum += c.Softirq + c.IRQ
	}
	return sum
}

// softirqWork returns a term that requires that interrupts and softirqs are the core's main work. It is met
// if more than half of the work is of a kind that the node does not report.
func softirqWork(softirq, unclassified, busy float64) Term {
	if unclassified > busy/2 {
		return requires("softirq-work", 1)
	}
	return requires("softirq-work", ratio(softirq, busy), .3, .7)
}

// full returns a term that requires that the busiest core is saturated.
func (s system) full() Term {
	return requires("full-core", s.Full.Busy, .70, .93).by(s.coreFact())
}

// satisfied returns a term that contradicts every limit if the load reached its set rate.
func (o *Observation) satisfied() Term {
	load := o.load()
	switch got := o.goodput(); {
	case load.RateBps > 0:
		share := got / load.RateBps
		return contradicts("satisfied", share, .93, .985).by(
			seen(metrics.Goodput, got, "the load got %h of the rate that it asked for", share))
	case load.ConnectionRate > 0:
		share, _ := o.connected()
		return contradicts("satisfied", share, .8, .95).by(
			seen(metrics.FlowRate, share, "%h of the connections completed in time"))
	}
	return contradicts("satisfied", 0)
}

// coreFact reports the busy share of the busiest core, compared with that of the least busy core.
func (s system) coreFact() Fact {
	e := fact("cpu_busy_ratio", s.Node, s.Full.Name, s.Full.Busy, "%s %s was busy for %h of the window",
		s.of(), s.Full, s.Full.Busy)
	if len(s.Cores) > 1 {
		e.Text += say(", %s for %h", s.Slack, s.Slack.Busy)
		e = against(e, s.Slack.Busy)
	}
	return e
}

// softirqFact reports the share of interrupts and softirqs on the busiest core.
func (s system) softirqFact() Fact {
	share := s.Full.Softirq + s.Full.IRQ
	e := fact("cpu_softirq_ratio", s.Node, s.Full.Name, share, "interrupts and softirqs took %h of %s", share,
		s.Full)
	if s.Full.Unclassified > 0 {
		e.Text = say("interrupts took at least %h of %s; the %s does not report the kind of its "+
			"other work", share, s.Full, s.Node)
	}

	return e
}

// ratio returns a ÷ b, or 0 if b ≤ 0.
func ratio(a, b float64) float64 {
	if b <= 0 {
		return 0
	}
	return a / b
}

// perSecond converts a count in the window to a rate per second.
func (o *Observation) perSecond(count float64) float64 { return ratio(count, o.Window.Seconds()) }

// forwarded returns the number of packets that a router's ports received in the window. Tunnel devices do not
// count.
func (o *Observation) forwarded(node string) (float64, string) {
	return o.sumOf(node, "netdev", func(label string) bool { return o.isPort(node, label) }, "rx_packets")
}

// isPort reports whether a device is one of the node's ports in the topology.
func (o *Observation) isPort(node, device string) bool {
	return slices.ContainsFunc(o.Topology().Links, func(l record.TopoLink) bool {
		return slices.Contains(l.Ends[:], record.TopoPort{Node: node, Port: device})
	})
}

// tunnel returns the tunnel that the load actually used, or "" for none.
func (o *Observation) tunnel() string {
	name := cmp.Or(o.Resolved["tunnel"], o.Factor(factor.Tunnel))
	if name == factor.NoTunnel {
		return ""
	}
	return name
}

// cpuTime returns the growth of a column of the foreign probe in the window, in cores.
func (o *Observation) cpuTime(node, stem string) (float64, string) {
	ns, why := o.sum(place{Node: node}, "foreign", stem)
	return o.perSecond(ns) / 1e9, why
}

// throttled returns the throttled share of the last part of the window. from is where this part begins, as a
// share of the window's length. The result is the share in which a quota throttled the node's most throttled
// vCPU, or in which a guest's vCPUs had work but did not run although the machine had idle time. ok is false
// if no vCPU of the node is known.
func (o *Observation) throttled(node string, from float64) (share float64, ok bool) {
	columns, _ := o.Columns(record.HostNode, "guests", "guest_throttled_ns")
	for _, c := range columns {
		ns, has := c.GrewIn(from, 1)
		if has && strings.HasPrefix(c.Label+"/", node+"/") {
			share = max(share, ns/1e9/((1-from)*o.Window.Seconds()))
			ok = true
		}
	}

	guest, why := o.systemAt(node)
	machine, second := o.systemAt(record.HostNode)
	if why+second != "" || node == record.HostNode || o.Shared() {
		return share, ok
	}

	_, ran := o.keptFromRunning(guest, machine)
	stopped := (1 - ran) * degree(ran, .62, .48) * degree(guest.Full.Busy, .6, .9) *
		degree(machine.mean(), .72, .58)
	return max(share, stopped), ok || stopped > 0
}

// level returns the largest value of a gauge in the window. If each core has the gauge, it returns the mean
// over the cores of their largest values.
func (o *Observation) level(node, probe, stem string) (float64, string) {
	columns, why := o.Columns(node, probe, stem)
	var sum, n float64
	for _, c := range columns {
		if v, ok := c.Largest(); ok && !math.IsNaN(v) {
			sum += v
			n++
		}
	}

	if n == 0 {
		return 0, cmp.Or(why, "probe "+probe+" of "+node+" took no sample in the window")
	}

	return sum / n, ""
}
