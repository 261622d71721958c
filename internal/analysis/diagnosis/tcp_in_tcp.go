package diagnosis

import (
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
)

// tcpInTCP describes a tunnel over TCP whose retransmissions delay the traffic that it carries.
var tcpInTCP = rule("tcp-in-tcp", `
	label: losses on the tunnel's own TCP connection stall the traffic inside
	means: the tunnel runs over TCP, and one of its endpoints retransmits at least 0.3 % of its \
		segments, not counting the load's retransmissions
	explains: at-capacity
	any: run the tunnel over UDP: OpenVPN's proto udp, or WireGuard
		risk: some networks let only TCP pass
		plan: tunnel=openvpn
		tunnel: openvpn-tcp
`, func(o *Observation) Candidate {
	if !strings.HasPrefix(o.tunnel(), "openvpn-tcp") {
		return excluded()
	}

	outer, at, known := o.maxOnPath("TcpRetransSegs")
	needs(known, "no end of the tunnel counts retransmitted segments")
	sent, _ := o.grew(at, "TcpOutSegs")
	outer = max(outer-o.value(metrics.Retransmits), 0)
	again := ratio(outer, sent)
	return place{at, "process"}.candidate(requires("outer-loss", again, .001, .003).by(
		fact("TcpRetransSegs", at, "socket", outer, "the tunnel's own TCP at the %s retransmits %h of "+
			"its segments, and holds up what follows them", at, again)))
})
