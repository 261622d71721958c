package diagnosis

import (
	"cmp"
	"fmt"
)

// conntrackFull returns the rule for a connection tracking table without room for another entry.
func conntrackFull() Rule {
	return Rule{Class: ConntrackFull, Wasteful: true,
		Label: "the conntrack table is full",
		Means: "connection tracking dropped packets, and its table was at least 98 % full",
		Judge: func(o *Observation) Judgement {
			best := missing("the topology has no router")
			for _, node := range o.Routers() {
				entries, no := o.level(node, "conntrack", "entries")
				most, no2 := o.level(node, "conntrack", "max")
				if no = cmp.Or(no, no2); no != "" {
					best = likelier(best, missing(no))
					continue
				}
				drops, _ := o.Sum(node, "conntrack", "drop", nil)
				// A table that drops is full, though a sample a moment later finds room.
				full := max(degree(ratio(entries, most), .85, .98), degree(o.perSecond(drops), 10, 40))
				facts := factList{against(fact("entries", node, "conntrack", entries, fmt.Sprintf(
					"%.0f connections were tracked, the limit is %.0f", entries, most)), most),
					fact("drop", node, "conntrack", drops, fmt.Sprintf("%.0f packets were dropped "+
						"because the table was full", drops))}
				best = likelier(best, Judgement{Node: node, Element: "conntrack", Facts: facts,
					Terms: []Term{requires("full-table", full).by(facts[0]),
						requires("drops", degree(o.perSecond(drops), 0, 5)).by(facts[1])},
					Text: fmt.Sprintf("the %s's conntrack table is full: %.0f of %.0f, %.0f packets of new "+
						"connections dropped", node, entries, most, drops)})
			}
			return best
		},
		Remedies: []Remedy{
			{System: "linux", Do: "raise the connection limit", Commands: []string{
				"sysctl -w net.netfilter.nf_conntrack_max=262144",
				"echo 65536 > /sys/module/nf_conntrack/parameters/hashsize"},
				Risk: "about 300 bytes of memory per connection", Factor: "conntrack_max", Level: "262144"},
			{System: "openwrt", Do: "raise the connection limit", Commands: []string{
				"echo net.netfilter.nf_conntrack_max=65536 >> /etc/sysctl.conf", "sysctl -p"},
				Risk: "about 300 bytes of memory per connection"},
			{System: "routeros", Do: "time out idle connections sooner", Commands: []string{
				"/ip firewall connection tracking set tcp-established-timeout=1h"},
				Risk: "connections idle for longer break"},
			{System: "freebsd", Do: "raise pf's state limit, with a hash table to match", Commands: []string{
				"echo 'set limit states 500000' >> /etc/pf.conf",
				"echo net.pf.states_hashsize=1048576 >> /boot/loader.conf"}, Risk: "more memory"},
		}}
}
