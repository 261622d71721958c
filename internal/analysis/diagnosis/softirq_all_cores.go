package diagnosis

import "fmt"

// softirqAllCores returns the rule for a router whose cores are all full of packet work.
func softirqAllCores() Rule {
	return Rule{Class: SoftirqAllCores, Label: "all cores of the router are saturated by softirq",
		Means: "every core of the router is busy for at least 93 % of the window, mostly in interrupts and " +
			"softirqs",
		Judge: given((*Observation).ownSystem, func(o *Observation, s system) Judgement {
			text := fmt.Sprintf("all %d cores of the %s are saturated by softirq", len(s.Cores), s.Node)
			if len(s.Cores) == 1 {
				text = "the " + s.Node + "'s only core is saturated by softirq"
			}
			facts := factList{s.coreFact(), s.softirqFact()}
			return Judgement{Node: s.Node, Element: "cpu", Text: text, Facts: facts,
				Terms: []Term{requires("full-cores", degree(s.Slack.Busy, .70, .93)).by(facts[0]),
					softirqWork(s.softirq(), s.Unclassified, s.Busy).by(facts[1]), o.quota(s.Node)}}
		}),
		Experiments: cpuDoses,
		Remedies: []Remedy{
			{System: "linux", Do: "let established connections skip the forwarding path (nftables flowtable)",
				Commands: []string{"nft add flowtable inet filter f '{ hook ingress priority 0; devices = " +
					"{ lan, wan }; }'", "nft add rule inet filter forward ip protocol tcp flow add @f"},
				Risk:   "offloaded connections skip later rules and those that classify for queues",
				Factor: FlowtableFactor, Level: "on", When: (*Observation).notOffloaded},
			{System: "openwrt", Do: "enable software flow offloading; hardware offloading where supported",
				Commands: []string{"uci set firewall.@defaults[0].flow_offloading=1", "uci commit firewall",
					"service firewall restart"},
				Risk:   "SQM is bypassed, and IPv6 may get slower; hardware offloading bypasses counters",
				Factor: FlowtableFactor, Level: "on", When: (*Observation).notOffloaded},
			{System: "routeros", Do: "use FastTrack for established connections", Commands: []string{
				"/ip firewall filter add chain=forward connection-state=established,related " +
					"action=fasttrack-connection place-before=0"}, Risk: "it bypasses queues and IPsec"},
			{System: "freebsd", Do: "stop harvesting entropy from packets", Commands: []string{
				"sysctl kern.random.harvest.mask=351"}, Risk: "less entropy; gained 3 % (netbenches)"},
		}}
}
