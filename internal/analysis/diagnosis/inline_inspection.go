package diagnosis

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// inlineInspection returns the rule for a program that gets each packet, or a copy of it: an intrusion
// detection system, a flow exporter, a packet dump.
func inlineInspection() Rule {
	return Rule{Class: InlineInspection, Wasteful: true,
		Label: "a program of the router's own looks at each packet",
		Means: "a packet socket for all protocols, NFQUEUE or a log group was found on the router, " +
			"processes use at least 0.1 of a core beside forwarding, and a core is full",
		Judge: given((*Observation).ownSystem, func(o *Observation, s system) Judgement {
			what, why := o.inspects(s.Node)
			if why != "" {
				return missing(why)
			}
			if what == "" {
				return Judgement{Score: absent, Facts: factList{fact("taps", s.Node, "", 0,
					"no program of the "+s.Node+" gets copies of packets")}}
			}
			other, _, why := o.otherWork(s)
			if why != "" {
				return missing(why)
			}
			e := fact("other_cores", s.Node, "processes", other, "processes used "+unit.Percent(other)+
				" of a core")
			return Judgement{Node: s.Node, Element: "processes", GainAtMost: o.gainToTester(),
				Terms: []Term{requires("processes", degree(other, .04, .12)).by(e), s.full()},
				Facts: factList{e, s.coreFact()}, Text: fmt.Sprintf("packets of the %s also go to %s, and "+
					"processes use %s of a core", s.Node, what, unit.Percent(other))}
		}),
		Experiments: cpuDoses,
		Remedies: []Remedy{{System: "linux", Do: "find the program, and let it see samples, or flows by a " +
			"filter in the kernel", Commands: []string{"ss -0 -p", "cat /proc/net/netfilter/nfnetlink_queue"},
			Risk: "it sees less"}}}
}

// inspects returns what else gets a node's packets, "" for nothing; why where that is not known.
func (o *Observation) inspects(node string) (what, why string) {
	why = "what taps the packets of the " + node + " is not known"
	for _, e := range o.Run.Environments {
		if e.Node != node || e.Inventory == nil {
			continue
		}
		if why = e.Inventory.Lacks("taps"); why != "" {
			continue
		}
		for _, v := range []*record.Inventory{e.Inventory, e.InventoryAfter} {
			if v == nil {
				continue
			}
			for _, t := range v.Taps {
				if t.Protocol == "0003" {
					what = fmt.Sprintf("packet sockets on %s", cmp.Or(t.Device, "all devices"))
				}
			}
			if len(v.NFQueues) > 0 {
				what = fmt.Sprintf("NFQUEUE %d", v.NFQueues[0].Number)
			}
			lines, _ := o.Sum(node, "kernellog", "lines", nil)
			if v.Filter != nil && o.perSecond(lines) < 5 && slices.ContainsFunc(v.Filter.Rules,
				func(r record.FilterRule) bool { return slices.Contains(r.Kinds, record.RuleLog) }) {
				what = "a log group of the packet filter"
			}
		}
	}
	return what, why
}
