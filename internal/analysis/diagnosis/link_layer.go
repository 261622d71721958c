package diagnosis

// linkLayer describes a link with a low speed or half duplex, damaged frames, or pause frames.
var linkLayer = rule(LinkLayer, `
	label: link errors, half duplex or pause frames slow a port down
	means: a port runs at half duplex, or counts errors on at least one frame in 10,000, or at \
		least 100 pause frames per second
	any: swap the cable and the port; enable autonegotiation at both ends
		risk: the link goes down for a few seconds
	linux: autonegotiate speed and duplex
		$ ethtool -s DEV autoneg on
		risk: the link goes down for a few seconds
	linux: check which side sends pause frames
		$ ethtool -S DEV | grep -i pause
		$ ethtool -a DEV
	openwrt: check what the ports negotiated
		$ ubus call network.device status
	routeros: check what the ports negotiated
		$ /interface ethernet monitor [find] once
	freebsd: autonegotiate speed and duplex
		$ ifconfig DEV media autoselect
`, func(o *Observation) Candidate {
	return likeliest("no port on the path has counters", o.ports(o.nodes()...), o.linkOf)
})

func (o *Observation) linkOf(at place) Candidate {
	frames := o.total(at, "netdev", "rx_packets tx_packets")
	errors := o.total(at, "netdev", "rx_errors rx_frame_errors tx_errors tx_collisions "+
		"tx_carrier_errors")
	pauses := o.perSecond(o.total(at, "ethtool", "rx_pause_frames_total tx_pause_frames_total"))
	share := ratio(errors, frames+errors)
	slows := degree(share, 1e-6, 1e-4)
	paused := degree(pauses, 10, 100)
	e := at.fact("rx_errors", errors, "%s: %.0f errors in %.0f frames", at.Element, errors, frames)
	if paused > slows {
		slows = paused
		e = at.fact("rx_pause_frames_total", pauses,
			"port %s of %s is throttled by %.0f pause frames per second", at.Element, at.Node, pauses)
	}

	if o.Run.Facts(at.Node)["device:"+at.Element+":duplex"] == "half" {
		slows = 1
		e = at.fact("duplex", 0, "port %s of %s runs at half duplex", at.Element, at.Node)
	}

	j := at.candidate(requires("slow-link", slows).by(e))
	if e.Metric == "rx_errors" {
		j = j.text("port %s of %s has errors on %h of its frames", at.Element, at.Node, share)
	}

	return j
}
