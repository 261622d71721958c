package diagnosis

// softirqAllCores describes a router that saturates all its cores with packet processing.
var softirqAllCores = rule(SoftirqAllCores, `
	label: all cores of the router are saturated by softirq
	means: every core of the router is busy for at least 93 % of the window, mostly in \
		interrupts and softirqs
	traits: at-capacity in-router in-guest busy-cores
	kind: packet
	planted: cpu_quota
	linux: let established connections skip the forwarding path (nftables flowtable)
		$ nft add flowtable inet filter f '{ hook ingress priority 0; devices = { lan, wan }; }'
		$ nft add rule inet filter forward ip protocol tcp flow add @f
		risk: offloaded connections skip later rules and those that classify for queues
		plan: flowtable=on
		when: not offloaded
	openwrt: enable software flow offloading; hardware offloading where supported
		$ uci set firewall.@defaults[0].flow_offloading=1
		$ uci commit firewall
		$ service firewall restart
		risk: SQM is bypassed, and IPv6 may get slower; hardware offloading bypasses counters
		plan: flowtable=on
		when: not offloaded
	routeros: use FastTrack for established connections
		$ /ip firewall filter add chain=forward connection-state=established,related \
		action=fasttrack-connection place-before=0
		risk: it bypasses queues and IPsec
	freebsd: stop harvesting entropy from packets
		$ sysctl kern.random.harvest.mask=351
		risk: less entropy; gained 3 % (netbenches)
`, func(o *Observation) Candidate {
	s := ownSystem(o)
	j := s.at("cpu").candidate(requires("full-cores", s.Slack.Busy, .70, .93).by(s.coreFact()),
		softirqWork(s.softirq(), s.Unclassified, s.Busy).by(s.softirqFact()))
	if len(s.Cores) == 1 {
		return j.text("the %s's only core is saturated by softirq", s.Node)
	}
	return j.text("all %d cores of the %s are saturated by softirq", len(s.Cores), s.Node)
})
