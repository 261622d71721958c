package diagnosis

import (
	"fmt"
	"slices"
)

// offloadLost returns the rule for a flow table that does not carry the connections, or no longer does.
func offloadLost() Rule {
	return Rule{Class: OffloadLost, Label: "connections are not offloaded",
		Means: "half of the offloaded connections are gone by the end of the window; or a flowtable is on " +
			"and carries less than a tenth of the connections",
		Judge: func(o *Observation) Judgement {
			routers := o.Routers()
			if len(routers) == 0 {
				return missing("the topology has no router")
			}
			node := routers[0]
			offloaded, why := o.Columns(node, "flows", "flows_offloaded")
			if why != "" {
				return missing(why)
			}
			tracked, why := o.level(node, "flows", "flows_tracked")
			if why != "" {
				return missing(why)
			}
			most, _ := offloaded[0].Largest()
			last := offloaded[0].last()
			on := slices.Contains([]string{"on", "hardware"}, o.Factor("flowtable"))
			if !on && most == 0 {
				return missing("no connection is offloaded, and no flowtable is on")
			}
			lost := max(degree(ratio(last, most), .9, .5), yes(on)*degree(ratio(most, tracked), .5, .1))
			facts := factList{against(fact("flows_offloaded", node, "flowtable", last, fmt.Sprintf(
				"%.0f connections were offloaded at the end, %.0f at the peak", last, most)), most)}
			return Judgement{Node: node, Element: "flowtable", Facts: facts,
				Terms: []Term{requires("not-offloaded", lost).by(facts[0])},
				Text: fmt.Sprintf("the %s's flowtable carries %.0f of %.0f connections at the "+
					"end, %.0f at its peak", node, last, tracked, most)}
		},
		Remedies: []Remedy{
			{System: "linux", Do: "check that traffic reaches the rule that adds flows", Commands: []string{
				"nft list ruleset | grep -B2 'flow add'"}},
			{System: "openwrt", Do: "restart the firewall, which repopulates the table", Commands: []string{
				"service firewall restart"}, Risk: "connections may break"},
			{System: "routeros", Do: "check that FastTrack is first and counts packets", Commands: []string{
				"/ip firewall filter print stats where action=fasttrack-connection"}},
		}}
}
