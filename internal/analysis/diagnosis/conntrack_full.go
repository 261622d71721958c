package diagnosis

import (
	"cmp"
	"fmt"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
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
				// It is full where it drops, though a sample a moment later finds room.
				score := max(ramp(fill, .85, .98, -5, 2), ramp(o.perSecond(drops), 10, 40, -5, 2))
				j := Judgement{Score: score + ramp(o.perSecond(drops), 0, 5, -3, 3.5),
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
