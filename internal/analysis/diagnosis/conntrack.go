package diagnosis

import (
	"cmp"
	"fmt"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// conntrackFull is a table of connections that has no room for another.
func conntrackFull() Rule {
	return Rule{Class: ConntrackFull, Label: "the table of tracked connections is full",
		Means: "connection tracking dropped packets, and its table held 98 % or more of what it can",
		Judge: func(o *Observation) Judgement {
			why := "the topology names no router"
			best := missing(why)
			for _, node := range o.Routers() {
				entries, no := o.level(node, "conntrack", "entries")
				most, no2 := o.level(node, "conntrack", "max")
				if no = cmp.Or(no, no2); no != "" {
					if best.NotExamined != "" {
						best = missing(no)
					}
					continue
				}
				drops, _ := o.Sum(node, "conntrack", "drop", nil)
				fill := ratio(entries, most)
				j := Judgement{Score: ramp(fill, .85, .98, -5, 2) + ramp(o.perSecond(drops), 0, 5, -3, 3.5),
					Node: node, Element: "conntrack", Text: fmt.Sprintf("the %s's table of connections is "+
						"full: %.0f of %.0f, %.0f packets of new ones dropped", node, entries, most, drops),
					Facts: []evidence.Evidence{against(fact("entries", node, "conntrack", entries,
						fmt.Sprintf(
							"%.0f connections were tracked, %.0f can be", entries, most)), most),
						fact("drop", node, "conntrack", drops, fmt.Sprintf("%.0f packets were dropped "+
							"for want of room", drops))}}
				if best.NotExamined != "" || j.Score > best.Score {
					best = j
				}
			}
			return best
		},
		Experiments: func(_ *Observation, j Judgement) []Experiment {
			return []Experiment{{Class: j.Class, Factor: "connection_rate", Doses: []string{"10", "50",
				"200"},
				From: "tester", Why: "few enough new connections leave room, and none fails"},
				{Class: j.Class, Factor: "conntrack_max", Doses: []string{"65536", "131072", "262144"},
					From: "router", Why: "with a larger table none is refused"}}
		},
		Remedies: []Remedy{
			{System: "linux", Do: "allow more connections", Commands: []string{
				"sysctl -w net.netfilter.nf_conntrack_max=262144",
				"echo 65536 > /sys/module/nf_conntrack/parameters/hashsize"},
				Risk: "about 300 bytes of memory each", Factor: "conntrack_max", Level: "262144"},
			{System: "openwrt", Do: "allow more connections", Commands: []string{
				"echo net.netfilter.nf_conntrack_max=65536 >> /etc/sysctl.conf", "sysctl -p"},
				Risk: "about 300 bytes of memory each"},
			{System: "routeros", Do: "forget idle connections earlier", Commands: []string{
				"/ip firewall connection tracking set tcp-established-timeout=1h"},
				Risk: "long silent connections break"},
			{System: "freebsd", Do: "allow pf more states, with a hash table to match", Commands: []string{
				"echo 'set limit states 500000' >> /etc/pf.conf",
				"echo net.pf.states_hashsize=1048576 >> /boot/loader.conf"}, Risk: "memory"},
		}}
}

// connectionRate is a router whose CPU is full of setting up connections.
func connectionRate() Rule {
	return Rule{Class: ConnectionRate, Label: "new connections per second",
		Means: "the load is of short connections, goodput is small, and the CPUs are full",
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
				return missing("no connection was completed")
			}
			node := s.Node
			if routers := o.Routers(); node == record.HostNode && len(routers) > 0 {
				node = routers[0]
			}
			got, _ := o.Metric(metrics.Goodput)
			perFlow := ratio(got/8, rate)
			return Judgement{Score: o.full(s, 3) + ramp(perFlow, 20e3, 200e3, 1.3, -3), Node: node,
				Element: "cpu",
				Text: fmt.Sprintf("the CPU is full at %s new connections a second", unit.Significant(rate,
					3)),
				Facts: []evidence.Evidence{fact("flows_per_s", node, "", rate, unit.Significant(rate, 3)+
					" connections a second, each of "+unit.Significant(perFlow, 3)+" bytes"), s.coreFact()}}
		},
		Experiments: func(o *Observation, j Judgement) []Experiment {
			return append([]Experiment{{Class: j.Class, Factor: "flow_size", Doses: []string{"2000", "4000",
				"8000"},
				From: "tester", Why: "larger flows at the same number a second: the rate of connections " +
					"stays, goodput rises with the size"}}, cpuDoses(o, j)...)
		},
		Remedies: []Remedy{
			{System: "linux", Do: "do not track connections that need no state", Commands: []string{
				"nft add rule inet raw prerouting udp dport 53 notrack"},
				Risk: "no NAT and no state for them"},
			{System: "linux", Do: "a larger hash table of connections", Commands: []string{
				"echo 65536 > /sys/module/nf_conntrack/parameters/hashsize"}, Risk: "memory"},
			{System: "freebsd", Do: "a larger hash table of pf's states", Commands: []string{
				"echo net.pf.states_hashsize=1048576 >> /boot/loader.conf"},
				Risk: "memory; it brought 15 % at 100,000 states (netbenches)"},
		}}
}
