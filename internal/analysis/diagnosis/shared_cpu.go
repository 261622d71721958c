package diagnosis

import (
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// sharedCPU describes the limit of a lab whose roles share one machine's cores.
var sharedCPU = rule(SharedCPU, `
	label: the cores that all roles share are saturated
	means: one machine runs all roles of the lab, and its cores are saturated
	traits: quiet at-capacity in-guest busy-cores
	kind: packet
	any: use more cores, or a machine for each role (peer)
`, func(o *Observation) Candidate {
	near := o.Run.Near()
	node := record.HostNode
	roles := "client, router and server"
	switch sharing := o.Run.KernelOf(near.Name); {
	case len(sharing) > 1:
		node, roles = near.Name, strings.Join(sharing, ", ")
	case near.OwnCPUs():
		return excluded()
	}

	s := need(o.systemAt(node))
	guest := 0.0
	if router, why := o.firstRouter(); why == "" && !o.Shared() {
		g, _ := o.systemAt(router)
		guest = g.Full.Busy // a saturated guest is the more specific cause
	}

	return s.at("cpu").candidate(requires("full-cores", s.mean(), .70, .95).by(s.meanFact()),
		contradicts("full-guest", guest, .7, .93),
		o.knownUser(s)).
		facts(s.coreFact()).
		text("%s share this machine's %d cores, which are saturated", roles, len(s.Cores))
})

// knownUser returns a term that contradicts shared-cpu if a particular user of the cores is known: a tunnel's
// process, connection setup, or work outside the lab.
func (o *Observation) knownUser(s system) Term {
	other, _, _ := o.otherWork(s)
	known := degree(other/float64(len(s.Cores)), .2, .5)
	if flows := o.Traffic.ShortFlows; flows != nil && !flows.Kept {
		known = 1
	}

	took, why := o.tunnelProcesses(s)
	if why == "" && o.Shared() && factor.InUserspace(o.tunnel()) {
		known = max(known, degree(took, .3, .8))
	}

	return contradicts("known-user", known)
}
