package diagnosis

// logFlood describes a kernel whose logging delays packets.
var logFlood = rule(LogFlood, `
	label: the kernel log is flooded
	means: the router's kernel logs at least 50 lines per second, and a core is saturated
	traits: wasteful in-router
	explains: busy-cores
	kind: packet
	planted: log_flood cpu_quota
	linux: rate-limit the packet filter's logging
		$ nft add rule inet filter forward limit rate 5/second log
		risk: log lines are lost
	linux: keep the log off the serial console
		$ dmesg -n 4
	openwrt: rate-limit the zone's logging
		$ uci set firewall.@zone[1].log_limit='5/second'
		$ uci commit firewall
		$ service firewall restart
	routeros: remove log=yes from rules on the fast path
		$ /ip firewall filter set [find log=yes] log=no
		risk: those log entries are gone
	freebsd: remove log from pf rules that match a lot of traffic
`, func(o *Observation) Candidate {
	s := need(systemOf(o))
	lines := need(o.sum(place{Node: s.Node}, "kernellog", "lines"))
	rate := o.perSecond(lines)
	at := place{s.Node, "kernel log"}
	return at.candidate(requires("many-lines", rate, 5, 50).by(
		at.fact("lines", lines, "the kernel logged %g lines per second", rate)),
		requires("busy-core", s.Full.Busy, .5, .9).by(s.coreFact())).
		text("the %s's kernel logs %.2g lines per second: logging takes the CPU time", s.Node, rate)
})
