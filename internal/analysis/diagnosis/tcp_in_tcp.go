package diagnosis

import (
	"fmt"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// tcpInTCP returns the rule for a tunnel over TCP whose own retransmissions hold up all that it carries.
func tcpInTCP() Rule {
	return Rule{Class: TCPInTCP, Label: "the tunnel's own TCP loses packets and stalls what it carries",
		Means: "the tunnel runs over TCP, and its end retransmits at least 0.3 % of the segments, not " +
			"counting the load's",
		Judge: func(o *Observation) Judgement {
			if !strings.HasPrefix(o.tunnel(), "openvpn-tcp") {
				return Judgement{Score: absent}
			}
			at, outer, sent, known := "", 0.0, 0.0, false
			_, inner, _ := o.resent()
			for _, node := range o.nodes() {
				n, ok := o.grew(node, "TcpRetransSegs")
				if known = known || ok; n > outer {
					at, outer = node, n
					sent, _ = o.grew(node, "TcpOutSegs")
				}
			}
			if !known {
				return missing("no end of the tunnel counts retransmitted segments")
			}
			outer = max(outer-inner, 0)
			again := ratio(outer, sent)
			text := fmt.Sprintf("the tunnel's own TCP at the %s retransmits %s of its segments, and holds "+
				"up what follows them", at, unit.Percent(again))
			e := fact("TcpRetransSegs", at, "socket", outer, text)
			return Judgement{Node: at, Element: "process", Text: text, Facts: factList{e},
				Terms: []Term{requires("outer-loss", degree(again, .001, .003)).by(e),
					requires("counted", degree(outer, 2, 8)).by(e)}}
		},
		Remedies: []Remedy{{Do: "run the tunnel over UDP: OpenVPN's proto udp, or WireGuard",
			Risk: "networks that let only TCP pass", Factor: "tunnel", Level: "openvpn",
			Tunnel: "openvpn-tcp"}}}
}
