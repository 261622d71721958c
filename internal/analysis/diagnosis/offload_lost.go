package diagnosis

// offloadLost describes a flowtable that does not carry the connections, or no longer does.
var offloadLost = rule(OffloadLost, `
	label: connections are not offloaded
	means: half of the offloaded connections are gone by the end of the window; or a flowtable \
		is on and carries less than a tenth of the connections
	linux: check that traffic reaches the rule that adds flows
		$ nft list ruleset | grep -B2 'flow add'
	openwrt: restart the firewall, which repopulates the table
		$ service firewall restart
		risk: connections may break
	routeros: check that FastTrack is first and counts packets
		$ /ip firewall filter print stats where action=fasttrack-connection
`, func(o *Observation) Candidate {
	node := need(o.firstRouter())
	offloaded := need(o.Columns(node, "flows", "flows_offloaded"))
	tracked := need(o.level(node, "flows", "flows_tracked"))
	peak, _ := offloaded[0].Largest()
	_, last := offloaded[0].ends()
	on := among(o.Factor(FlowtableFactor), "on hardware")
	needs(on || peak != 0, "no connection is offloaded, and no flowtable is on")
	at := place{node, "flowtable"}
	lost := max(degree(ratio(last, peak), .9, .5), yes(on)*degree(ratio(peak, tracked), .5, .1))
	return at.candidate(requires("not-offloaded", lost).by(against(at.fact("flows_offloaded", last,
		"%.0f connections were offloaded at the end, %.0f at the peak", last, peak), peak))).
		text("the %s's flowtable carries %.0f of %.0f connections at the end, %.0f at its peak", node,
			last, tracked, peak)
})
