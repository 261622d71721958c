package diagnosis

import (
	"fmt"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
)

// offloadLost is a flow table that does not carry the connections, or no longer.
func offloadLost() Rule {
	return Rule{Class: OffloadLost, Label: "connections do not take the offload path",
		Means: "connections are offloaded at the window's beginning and a half fewer at its end; or a flow " +
			"table is on and carries less than a tenth of them",
		Judge: func(o *Observation) Judgement {
			routers := o.Routers()
			if len(routers) == 0 {
				return missing("the topology names no router")
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
			on := o.Factor("flowtable") == "on"
			if !on && most == 0 {
				return missing("no connection is offloaded, and no flow table is on")
			}
			score := ramp(ratio(last, most), .5, .9, 3, -4)
			share := ratio(most, tracked)
			if on {
				score = max(score, ramp(share, .1, .5, 3, -4))
			}
			return Judgement{Score: score + o.wants(), Node: node, Element: "flowtable",
				Text: fmt.Sprintf("the %s's flow table carries %.0f of %.0f connections at the "+
					"end, %.0f at most", node, last, tracked, most),
				Facts: []evidence.Evidence{against(fact("flows_offloaded", node, "flowtable", last,
					fmt.Sprintf("%.0f connections were offloaded at the end, %.0f at most", last,
						most)), most)}}
		},
		Experiments: func(_ *Observation, j Judgement) []Experiment {
			return []Experiment{{Class: j.Class, Factor: "streams", Doses: []string{"1", "16", "256"},
				From: "tester", Why: "where a table's room is the limit, few connections keep their offload"},
				{Class: j.Class, Factor: "flowtable", Doses: []string{"off", "on"}, From: "router",
					Why: "switched off and on, connections enter the table again"}}
		},
		Remedies: []Remedy{
			{System: "linux", Do: "see that the rule that adds flows is reached", Commands: []string{
				"nft list ruleset | grep -B2 'flow add'"}, Factor: "flowtable", Level: "on"},
			{System: "openwrt", Do: "restart the firewall, which fills the table again", Commands: []string{
				"service firewall restart"}, Risk: "connections may break"},
			{System: "routeros", Do: "see that the FastTrack rule is first and counts", Commands: []string{
				"/ip firewall filter print stats where action=fasttrack-connection"}},
		}}
}
