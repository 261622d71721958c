package diagnosis

// conntrackFull describes a full connection tracking table.
var conntrackFull = rule(ConntrackFull, `
	label: the conntrack table is full
	means: connection tracking dropped packets, and its table was at least 98 % full
	traits: wasteful any-rate
	planted: conntrack_max
	linux: raise the connection limit
		$ sysctl -w net.netfilter.nf_conntrack_max=262144
		$ echo 65536 > /sys/module/nf_conntrack/parameters/hashsize
		risk: about 300 bytes of memory per connection
		plan: conntrack_max=262144
	openwrt: raise the connection limit
		$ echo net.netfilter.nf_conntrack_max=65536 >> /etc/sysctl.conf
		$ sysctl -p
		risk: about 300 bytes of memory per connection
	routeros: time out idle connections sooner
		$ /ip firewall connection tracking set tcp-established-timeout=1h
		risk: connections idle for longer break
	freebsd: raise pf's state limit, with a hash table to match
		$ echo 'set limit states 500000' >> /etc/pf.conf
		$ echo net.pf.states_hashsize=1048576 >> /boot/loader.conf
		risk: more memory
`, func(o *Observation) Candidate {
	return likeliest("the topology has no router", o.Routers(), func(node string) Candidate {
		at := place{node, "conntrack"}
		entries := need(o.level(node, "conntrack", "entries"))
		limit := need(o.level(node, "conntrack", "max"))
		drops := o.total(place{Node: node}, "conntrack", "drop")
		// If the table dropped packets, it was full, even if a later sample shows free entries.
		full := max(degree(ratio(entries, limit), .85, .98), degree(o.perSecond(drops), 10, 40))
		return at.candidate(requires("full-table", full).by(
			against(at.fact("entries", entries,
				"%.0f connections were tracked, the limit is %.0f", entries, limit), limit)),
			requires("drops", o.perSecond(drops), 0, 5).by(
				at.fact("drop", drops, "%.0f packets were dropped because the table was full"))).
			text("the %s's conntrack table is full: %.0f of %.0f, %.0f packets of new connections "+
				"dropped", node, entries, limit, drops)
	})
})
