package diagnosis

// smallSegments describes TCP segments far smaller than Ethernet carries, on saturated CPUs. The cost of a
// packet hardly depends on its size.
var smallSegments = rule("small-segments", `
	label: TCP's segments are small
	means: TCP's segments are smaller than half of an Ethernet packet, and a core that processes \
		them is saturated
	traits: wasteful
	explains: busy-cores
	costly: mss link_mtu
	linux: look for what clamps the MSS, and for a small MTU on the way
		$ nft list ruleset | grep maxseg
		$ ip link | grep mtu
		$ ip route | grep advmss
`, func(o *Observation) Candidate {
	segment := o.mss()
	needs(segment > 0, "the size of segments is not known")
	sender, _ := o.Ends()
	mss := float64(segment)
	busy := o.fullest()
	full := degree(busy, .6, .9)
	if o.Shared() { // because all roles work in turn, no core need be saturated
		full = degree(busy, .4, .6)
	}

	return wholePath.candidate(requires("small-mss", mss, 1000, 600).by(
		against(fact("mss_bytes", sender, "socket", mss, "the ends agreed on segments of %d bytes",
			segment), ethernetMSS)),
		requires("full-core", full).by(
			fact("cpu_busy_ratio", "", "cpu", busy, "the busiest core on the way was busy for %h"))).
		gain(min(ethernetMSS/mss, max(o.gainToTester(), 1))).
		text("TCP sends segments of %d bytes, where Ethernet carries 1448: each costs the CPU as much "+
			"as a full one", segment)
})
