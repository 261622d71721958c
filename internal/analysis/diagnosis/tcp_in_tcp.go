package diagnosis

import "strings"

// tcpInTCP describes a tunnel over TCP whose own retransmissions hold up all that it carries.
var tcpInTCP = Rule{
	Class: TCPInTCP,
	Words: words(`
		label: the tunnel's own TCP loses packets and stalls what it carries
		means: the tunnel runs over TCP, and its end retransmits at least 0.3 % of the segments, \
			not counting the load's
		any: run the tunnel over UDP: OpenVPN's proto udp, or WireGuard
			risk: networks that let only TCP pass
			plan: tunnel=openvpn
			tunnel: openvpn-tcp
	`),
	Check: func(o *Observation) Candidate {
		if !strings.HasPrefix(o.tunnel(), "openvpn-tcp") {
			return excluded()
		}
		at, outer, known := "", 0.0, false
		for _, node := range o.nodes() {
			n, ok := o.grew(node, "TcpRetransSegs")
			known = known || ok
			if n > outer {
				at, outer = node, n
			}
		}
		if !known {
			return missing("no end of the tunnel counts retransmitted segments")
		}
		_, inner, _ := o.resent()
		sent, _ := o.grew(at, "TcpOutSegs")
		outer = max(outer-inner, 0)
		again := ratio(outer, sent)
		text := say("the tunnel's own TCP at the %s retransmits %h of its segments, and holds up what "+
			"follows them", at, again)
		e := fact("TcpRetransSegs", at, "socket", outer, text)
		return place{at, "process"}.candidate(requires("outer-loss", again, .001, .003).by(e),
			requires("counted", outer, 2, 8).by(e)).text(text)
	},
}
