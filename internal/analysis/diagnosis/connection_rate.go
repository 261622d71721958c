package diagnosis

import (
	"fmt"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// connectionRate returns the rule for a router whose CPU is full of setting up connections.
func connectionRate() Rule {
	return Rule{Class: ConnectionRate, Label: "the rate of new connections saturates the CPU",
		Means: "the load opens short connections, goodput is low, and the CPU is saturated",
		Judge: func(o *Observation) Judgement {
			flows := o.Trial.Traffic.ShortFlows
			if flows == nil || flows.Kept {
				return Judgement{Score: absent}
			}
			s, why := o.systemOf()
			if why != "" {
				return missing(why)
			}
			rate, ok := o.Metric("flows_per_s")
			if !ok {
				return missing("no connection completed")
			}
			node := s.Node
			if routers := o.Routers(); node == record.HostNode && len(routers) > 0 {
				node = routers[0]
			}
			got, _ := o.Metric(metrics.Goodput)
			perFlow := ratio(got/8, rate)
			e := fact("flows_per_s", node, "", rate, unit.Significant(rate, 3)+
				" connections per second of "+unit.Significant(perFlow, 3)+" bytes each")
			return Judgement{Node: node, Element: "cpu", Facts: factList{e, s.coreFact()},
				Terms: []Term{requires("small-flows", degree(perFlow, 200e3, 20e3)).by(e), s.full()},
				Text: fmt.Sprintf("the CPU is saturated at %s new connections per second",
					unit.Significant(rate, 3))}
		},
		Experiments: cpuDoses,
		Remedies: []Remedy{
			{System: "linux", Do: "do not track connections that need no state", Commands: []string{
				"nft add rule inet raw prerouting udp dport 53 notrack"},
				Risk: "no NAT and no stateful rules for them"},
			{System: "linux", Do: "enlarge the conntrack hash table", Commands: []string{
				"echo 65536 > /sys/module/nf_conntrack/parameters/hashsize"}, Risk: "more memory"},
			{System: "freebsd", Do: "enlarge pf's state hash table", Commands: []string{
				"echo net.pf.states_hashsize=1048576 >> /boot/loader.conf"},
				Risk: "more memory; gained 15 % at 100,000 states (netbenches)"},
		}}
}
