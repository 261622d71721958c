package metrics

import (
	"cmp"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// place holds the properties of the place where a trial ran that affect the trial's metrics.
type place struct {
	routers []string            // routers under test, from near to far
	own     bool                // the routers have their own cores
	why     string              // reason why the routers have no cores of their own
	apart   bool                // no single machine runs all nodes
	ends    []string            // sender and receiver, from near to far
	kernels map[string][]string // node → nodes with the same kernel
	watts   float64             // mean power under load, as entered by the user; 0 means none
	meter   *record.Meter
}

// PlaceOf returns the place of a trial. Only routers that are real machines or guests have cores of their
// own, which do nothing but the router's work.
func PlaceOf(run *record.Run, f record.Factors) place {
	p := place{
		own:     run.Tested().OwnCPUs(),
		apart:   run.Near().OwnMachine(),
		meter:   run.Meter,
		kernels: map[string][]string{},
	}
	p.watts, _ = run.Design.Watts() // the error is nil, because a plan with an invalid power is rejected
	t := TopologyOf(run, f)
	if t != nil {
		p.routers = t.Routers
		p.ends = []string{t.Near, t.Far}
		if len(p.routers) > 0 {
			p.own = run.Node(p.routers[0]).OwnCPUs()
		}

		for _, n := range t.Nodes {
			p.kernels[n.Name] = run.KernelOf(n.Name)
		}
	}

	if !p.own {
		p.why = "the router shares the host's cores"
	} else if len(p.routers) > 0 && len(p.kernels[p.routers[0]]) > 0 {
		p.own = false
		p.why = "one kernel, and its cores, are shared by " +
			strings.Join(p.kernels[p.routers[0]], ", ")
	}

	return p
}

// sharing returns the samples of the other nodes with the same kernel as a node.
func (p place) sharing(t *record.Trial, node string) (others []record.NodeData) {
	for _, name := range p.kernels[node] {
		if name != node {
			others = append(others, t.Nodes[name])
		}
	}
	return others
}

func TopologyOf(run *record.Run, f record.Factors) *record.Topology {
	for i := range run.Topologies {
		if factor.Topology.Is(f, run.Topologies[i].Name) {
			return &run.Topologies[i]
		}
	}

	if len(run.Topologies) == 1 {
		return &run.Topologies[0]
	}
	return nil
}

// addRouters adds the metrics that come from the counters of the routers. A router in a namespace has its own
// counters even though it shares its cores.
func (m *Measured) addRouters(t *record.Trial, p place) {
	cpu := prefixed("router", machineStems...)
	if !p.own {
		m.Lack(p.why, cpu...)
	}

	counters := []string{interfaceDrops, qdiscDrops, Fragments, ConntrackUsed, conntrackDrops, FlowsOffloaded,
		IPsecDrops, KernelDrops}
	if len(p.routers) == 0 {
		m.Lack("the topology has no router", append(cpu, counters...)...)
		return
	}

	for _, name := range p.routers {
		if _, ok := t.Nodes[name]; !ok {
			m.Lack("nothing watched "+name, append(cpu, counters...)...)
			return
		}
	}

	if p.own {
		// If there are two routers, use the cores of the near one.
		m.addMachine("router", t.Nodes[p.routers[0]], t.Window)
		m.routers = busyCores(t, p.routers)
	}

	m.sumRouters(interfaceDrops, t, p, ownRoot, "netdev", "rx_dropped", "tx_dropped")
	m.sumRouters(qdiscDrops, t, p, ownRoot, "qdisc", "drops")
	m.sumRouters(Fragments, t, p, unlabelled, "snmp", "IpFragCreates", "Ip6FragCreates")
	m.sumRouters(conntrackDrops, t, p, unlabelled, "conntrack", "drop")
	m.sumRouters(IPsecDrops, t, p, unlabelled, "xfrm", ipsecCounters(t, p)...)
	if p.own {
		m.sumRouters(KernelDrops, t, p, unlabelled, "drops", "skb_drops")
	} else {
		m.Lack(p.why, KernelDrops)
	}

	m.largestOfRouters(ConntrackUsed, t, p, "conntrack", "entries")
	m.largestOfRouters(FlowsOffloaded, t, p, "flows", "flows_offloaded")
}

// ipsecCounters returns the names of the counters of dropped packets in the routers' kernels (xfrm probe).
func ipsecCounters(t *record.Trial, p place) []string {
	var all []string
	for _, name := range p.routers {
		table, _ := SamplesOf(t.Nodes[name], "xfrm")
		if table != nil {
			all = append(all, table.Names...)
		}
	}

	slices.Sort(all)
	return slices.Compact(all)
}

// busyCores returns the sum of the busy shares of the nodes' cores in the window, or 0 if a node has no CPU
// samples.
func busyCores(t *record.Trial, nodes []string) float64 {
	sum := 0.0
	for _, name := range nodes {
		cores := CoresOf(t.Nodes[name])
		if len(cores) == 0 {
			return 0
		}

		for _, c := range cores {
			busy, ok := c.Busy(t.Window.Start, t.Window.End)
			if !ok {
				return 0
			}

			sum += busy
		}
	}
	return sum
}

func (m *Measured) sumRouters(metric string, t *record.Trial, p place, keep func(label string) bool,
	probe string, stems ...string) {
	sum := 0.0
	missing := ""
	for _, name := range p.routers {
		v, why := grown(t.Nodes[name], probe, t.Window, keep, stems...)
		sum = sum + v
		missing = cmp.Or(missing, why)
	}

	m.setUnless(missing, metric, sum)
}

// ownRoot reports whether a label belongs to a device other than loopback, or to the root queue of such a
// device. A root queue also counts the drops of the queues below it.
func ownRoot(label string) bool { return label != "lo" && !strings.Contains(label, "@") }

// unlabelled reports whether a counter has no label.
func unlabelled(label string) bool { return label == "" }

// largestOfRouters adds up the largest values of a column in the window, one for each router, and sets a
// metric to the sum. It leaves out routers without a value.
func (m *Measured) largestOfRouters(metric string, t *record.Trial, p place, probe, stem string) {
	sum := 0.0
	found := false
	reason := ""
	for _, name := range p.routers {
		table, why := SamplesOf(t.Nodes[name], probe)
		reason = cmp.Or(why, reason)
		for _, c := range ColumnsOf(table, stem) {
			if v, ok := c.Curve.Largest(t.Window.Start, t.Window.End); ok {
				sum += v
				found = true
			}
		}
	}

	if reason = cmp.Or(reason, "the samples of probe "+probe+" do not cover the window"); found {
		reason = ""
	}

	m.setUnless(reason, metric, sum)
}
