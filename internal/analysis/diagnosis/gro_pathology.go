package diagnosis

import (
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
)

// groPathology describes GRO with fragment lists, which slows TCP down although nothing is saturated.
var groPathology = rule(GROPathology, `
	label: GRO with fragment lists slows TCP down
	means: a port merges received packets into lists (rx-gro-list), TCP retransmits at least 1 \
		% of its segments, and no core is busy for more than 60 %
	linux: turn it off
		$ ethtool -K DEV rx-gro-list off
		risk: more CPU time per packet
	openwrt: turn it off
		$ ethtool -K DEV rx-gro-list off
		risk: more CPU time per packet; lost on reboot
`, func(o *Observation) Candidate {
	s := need(systemOf(o))
	again := o.value(metrics.Retransmits)
	needs(o.IsTCP(), "the load is not TCP")
	for _, at := range o.ports(o.Routers()...) {
		if !among("rx-gro-list", o.Run.Facts(at.Node)["device:"+at.Element+":offloads"]) {
			continue
		}

		packets, _ := o.forwarded(at.Node)
		share := ratio(again, packets)
		return at.candidate(requires("retransmits", share, .002, .02).by(
			at.fact(metrics.Retransmits, again, "TCP retransmitted %h of its packets", share)),
			requires("slack-cores", s.Full.Busy, .9, .6).by(s.coreFact())).
			text("port %s of %s merges packets into lists (rx-gro-list), and TCP retransmits %h while no "+
				"core is saturated", at.Element, at.Node, share)
	}

	return excluded(fact("offloads", s.Node, "rx-gro-list", 0, "rx-gro-list is off on every router port"))
})
