package diagnosis

import (
	"fmt"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// sharedCPU returns the rule for the natural limit of a lab whose roles share one machine's cores.
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
			mean, guest := s.Busy/float64(len(s.Cores)), 0.0
			if routers := o.Routers(); !o.Shared() && len(routers) > 0 {
				// A guest at its own limit is more specific.
				if g, why := o.systemAt(routers[0]); why == "" {
					guest = degree(g.Full.Busy, .7, .93)
				}
			}
			facts := factList{fact("host_cpu_ratio", node, "cpu", mean,
				"all cores together were busy for "+unit.Percent(mean)+" of the window"), s.coreFact()}
			return Judgement{Node: node, Element: "cpu", Facts: facts,
				Terms: []Term{requires("full-cores", degree(mean, .70, .95)).by(facts[0]),
					contradicts("full-guest", guest), o.knownUser(s)},
				Text: fmt.Sprintf("%s share this machine's %d cores, which are saturated", roles,
					len(s.Cores))}
		},
		Experiments: always(Experiment{Factor: "mss", Doses: []string{"1200", "900", "700"},
			Resource: []float64{.83, .62, .48}, From: FromTester, Expect: 1, Why: "saturated cores move " +
				"a fixed number of packets, whatever their size"}),
		Remedies: []Remedy{{Do: "use a machine with more cores, or a separate machine for each role (peer)"}}}
}

// knownUser contradicts that shared cores are full by themselves where one user of them is known: a tunnel's
// process, connection setup, work outside the lab.
func (o *Observation) knownUser(s system) Term {
	other, _, _ := o.otherWork(s)
	known := degree(other/float64(len(s.Cores)), .2, .5)
	if flows := o.Trial.Traffic.ShortFlows; flows != nil && !flows.Kept {
		known = 1
	}
	if took, why := o.tunnelProcesses(s); why == "" && o.Shared() && factor.InUserspace(o.tunnel()) {
		known = max(known, degree(took, .3, .8))
	}
	return contradicts("known-user", known)
}
