package diagnosis

import (
	"cmp"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// inlineInspection describes a program that receives each packet or a copy of it, such as an intrusion
// detection system, a flow exporter or a packet capture.
var inlineInspection = rule("inline-inspection", `
	label: a program on the router inspects each packet
	means: the router has a packet socket for all protocols, an NFQUEUE or a log group, its \
		processes use at least 10 % of a core, not counting forwarding, and a core is saturated
	traits: wasteful to-tester
	explains: busy-cores
	kind: packet
	linux: find the program; let it inspect samples only, or flows that a kernel filter selects
		$ ss -0 -p
		$ cat /proc/net/netfilter/nfnetlink_queue
		risk: it sees less
`, func(o *Observation) Candidate {
	s := ownSystem(o)
	what := o.inspects(s.Node)
	if what == "" {
		return excluded(fact("taps", s.Node, "", 0, "no program of the %s gets copies of packets",
			s.Node))
	}

	other, _, why := o.otherWork(s)
	needs(why == "", why)
	at := place{s.Node, "processes"}
	return at.candidate(requires("processes", other, .04, .12).by(
		at.fact("other_cores", other, "processes used %h of a core")),
		s.full()).
		text("packets of the %s also go to %s, and processes use %h of a core", s.Node, what, other)
})

// inspects describes the programs that receive a node's packets, or returns "" if there are none.
func (o *Observation) inspects(node string) (what string) {
	e := o.environment(node)
	why := e.Inventory.Lacks("taps")
	needs(why == "", "what taps the packets of the "+node+" is not known: "+why)
	logs := func(r record.FilterRule) bool { return slices.Contains(r.Kinds, record.RuleLog) }
	for _, v := range []*record.Inventory{e.Inventory, e.InventoryAfter} {
		if v == nil {
			continue
		}

		for _, t := range v.Taps {
			if t.Protocol == "0003" {
				what = "packet sockets on " + cmp.Or(t.Device, "all devices")
			}
		}

		if len(v.NFQueues) > 0 {
			what = say("NFQUEUE %d", v.NFQueues[0].Number)
		}

		lines := o.perSecond(o.total(place{Node: node}, "kernellog", "lines"))
		if v.Filter != nil && lines < 5 && slices.ContainsFunc(v.Filter.Rules, logs) {
			what = "a log group of the packet filter"
		}
	}

	return what
}
