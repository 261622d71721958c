package diagnosis

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// groPathology returns the rule for GRO by fragment lists that keeps a rate low while nothing is full.
func groPathology() Rule {
	return Rule{Class: GROPathology, Label: "GRO with fragment lists slows TCP down",
		Means: "a port merges received packets into lists (rx-gro-list), TCP retransmits at least 1 % of " +
			"its segments, and no core is busy for more than 60 %",
		Judge: func(o *Observation) Judgement {
			s, why := o.systemOf()
			if why != "" || !o.IsTCP() {
				return missing(cmp.Or(why, "the load is not TCP"))
			}
			for _, node := range o.Routers() {
				for _, port := range o.ports(node) {
					offloads := o.Run.Facts(node)["device:"+port+":offloads"]
					if !strings.Contains(" "+offloads+" ", " rx-gro-list ") {
						continue
					}
					again, ok := o.Metric(metrics.Retransmits)
					packets, ok2 := o.forwarded(node)
					if !ok || !ok2 {
						return missing("retransmits or forwarded packets were not counted")
					}
					share := ratio(again, packets)
					facts := factList{fact(metrics.Retransmits, node, port, again,
						"TCP retransmitted "+unit.Percent(share)+" of its packets"), s.coreFact()}
					return Judgement{Node: node, Element: port, Facts: facts,
						Terms: []Term{requires("retransmits", degree(share, .002, .02)).by(facts[0]),
							requires("slack-cores", degree(s.Full.Busy, .9, .6)).by(facts[1])},
						Text: fmt.Sprintf("port %s of %s merges packets into lists (rx-gro-list), and TCP "+
							"retransmits %s while no core is saturated", port, node, unit.Percent(share))}
				}
			}
			return Judgement{Score: absent, Facts: factList{fact("offloads", s.Node, "rx-gro-list",
				0, "rx-gro-list is off on every router port")}}
		},
		Remedies: []Remedy{
			{System: "linux", Do: "turn it off", Commands: []string{"ethtool -K DEV rx-gro-list off"},
				Risk: "more CPU time per packet"},
			{System: "openwrt", Do: "turn it off", Commands: []string{"ethtool -K DEV rx-gro-list off"},
				Risk: "more CPU time per packet; lost on reboot"},
		}}
}
