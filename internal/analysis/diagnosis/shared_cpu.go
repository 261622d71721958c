package diagnosis

import (
	"fmt"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// sharedCPU is the natural limit of a lab whose roles share one machine's cores.
func sharedCPU() Rule {
	return Rule{Class: SharedCPU, Label: "the cores that all roles share are saturated", Quiet: true,
		Means: "one machine runs all roles of the lab, and its cores are saturated",
		Judge: func(o *Observation) Judgement {
			near := o.Run.Near()
			node, roles := record.HostNode, "client, router and server"
			switch sharing := o.Run.KernelOf(near.Name); {
			case len(sharing) > 1:
				node, roles = near.Name, strings.Join(sharing, ", ")
			case near.CPUs != record.CPUsShared:
				return Judgement{Score: absent}
			}
			s, why := o.systemAt(node)
			if why != "" {
				return missing(why)
			}
			mean := s.Busy / float64(len(s.Cores))
			busy := ramp(mean, .70, .95, unlikely, 3.2)
			score := busy + o.wants() - o.knownUser(s)
			if routers := o.Routers(); !o.Shared() && len(routers) > 0 {
				// A guest that is at its own limit says more.
				if g, why := o.systemAt(routers[0]); why == "" {
					score -= ramp(g.Full.Busy, .7, .93, 0, 2.5)
				}
			}
			return Judgement{Score: score, Node: node, Element: "cpu",
				Text: fmt.Sprintf("%s share this machine's %d cores, which are saturated", roles,
					len(s.Cores)),
				Facts: factList{fact("host_cpu_ratio", node, "cpu", mean,
					"all cores together were busy for "+unit.Percent(mean)+" of the window"), s.coreFact()},
			}.weighed(busy)
		},
		Experiments: always(Experiment{Factor: "mss", Doses: []string{"1200", "900", "700"},
			Resource: []float64{.83, .62, .48}, From: FromTester, Expect: 1, Why: "saturated cores move " +
				"a fixed number of packets, whatever their size"}),
		Remedies: []Remedy{{Do: "use a machine with more cores, or a separate machine for each role (peer)"}}}
}

// knownUser is what speaks for one user of shared cores, and so against their being full by themselves: a
// tunnel's process, the setting up of connections, work that is not the lab's.
func (o *Observation) knownUser(s system) float64 {
	other, _, _ := o.otherWork(s)
	known := ramp(other/float64(len(s.Cores)), .2, .5, 0, 1.5)
	if flows := o.Trial.Traffic.ShortFlows; flows != nil && !flows.Kept {
		known = 2
	}
	if took, why := o.tunnelProcesses(s); why == "" && o.Shared() && factor.InUserspace(o.tunnel()) {
		known = max(known, ramp(took, .3, .8, 0, 2))
	}
	return known
}
