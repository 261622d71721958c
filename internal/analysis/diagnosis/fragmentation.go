package diagnosis

import (
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
)

// fragmentation describes packets that exceed the MTU and are sent in fragments.
var fragmentation = rule(Fragmentation, `
	label: packets are fragmented: the tunnel MTU is too large
	means: a node fragments or reassembles at least 10 % of the load's packets
	traits: wasteful
	explains: at-capacity
	linux: set a tunnel MTU that fits, or clamp the TCP MSS
		$ ip link set dev TUNNEL mtu 1420
		$ nft add rule inet filter forward tcp flags syn tcp option maxseg size set rt mtu
		plan: mtu=1420
		when: not tunnel fits
	openwrt: set the interface MTU, and enable MSS clamping for its zone
		$ uci set network.wg0.mtu=1420
		$ uci set firewall.@zone[1].mtu_fix=1
		$ uci commit
		when: not tunnel fits
	routeros: set the interface MTU, and clamp the TCP MSS
		$ /interface wireguard set wireguard1 mtu=1420
		when: not tunnel fits
	freebsd: set the interface MTU, and max-mss in pf
		$ ifconfig wg0 mtu 1420
		when: not tunnel fits
	linux: clamp the TCP MSS to the path's MTU
		$ nft add rule inet filter forward tcp flags syn tcp option maxseg size set rt mtu
		when: tunnel fits
`, func(o *Observation) Candidate {
	const created = "IpFragCreates Ip6FragCreates"
	fragments, at, known := o.maxOnPath(created, "IpReasmReqds Ip6ReasmReqds")
	needs(known, "no node's protocol counters were read")
	made, maker, _ := o.maxOnPath(created)
	if made > fragments/4 {
		at = maker // the node that fragments, not the node that reassembles
	}

	got := o.goodput()
	share := fragments / 2 / max(got/8*o.Window.Seconds()/1400, 20)
	e := fact("IpFragCreates", at, "ip", fragments,
		"%.0f fragments in the window, for %h of the packets", fragments, min(share, 1))
	if fragments < 20 {
		return excluded(e)
	}

	// Twice as many packets cost twice the work. A packet is also lost if either half is lost, and CUBIC's
	// rate falls by less than half if the loss doubles (RFC 9438, section 5.1). The bound is unknown if the
	// path merges packets, because fragments are not merged.
	packets := 1 + min(share, 1)
	gain := packets * packets
	for _, h := range o.hops() {
		if o.pieces(o.passed(h.out, "tx")) > 1 {
			gain = 0
		}
	}

	element := "ip"
	if o.tunnel() != "" {
		element = "tunnel"
	}

	return place{at, element}.candidate(requires("fragments", share, .02, .2).by(e)).
		facts(seen(metrics.Goodput, got, "%b of goodput")).
		gain(gain).
		text("packets exceed the path MTU and are fragmented: %.0f fragments at the %s, for %h of the "+
			"packets", fragments, at, min(share, 1))
}, removing(factor.MSS, "1300", "segments that fit are not split: goodput rises at once"))
