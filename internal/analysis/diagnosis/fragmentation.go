package diagnosis

import (
	"fmt"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// fragmentation returns the rule for packets that do not fit and are sent in fragments.
func fragmentation() Rule {
	return Rule{Class: Fragmentation, Wasteful: true,
		Label: "packets are fragmented: the tunnel MTU is too large",
		Means: "a node fragments or reassembles at least 10 % of the load's packets",
		Judge: func(o *Observation) Judgement {
			got, _ := o.Metric(metrics.Goodput)
			packets := got / 8 * o.Trial.Window.Seconds() / 1400
			most, at, known := o.maxOnPath([]string{"IpFragCreates", "Ip6FragCreates"},
				[]string{"IpReasmReqds", "Ip6ReasmReqds"})
			if made, maker, _ := o.maxOnPath([]string{"IpFragCreates", "Ip6FragCreates"}); made > most/4 {
				at = maker // not where they are put together
			}
			if !known {
				return missing("no node's protocol counters were read")
			}
			share := most / 2 / max(packets, 20)
			e := fact("IpFragCreates", at, "ip", most, fmt.Sprintf("%.0f fragments in the window, for %s "+
				"of the packets", most, unit.Percent(min(share, 1))))
			if most < 20 {
				return Judgement{Score: absent, Facts: factList{e}}
			}
			element := "ip"
			if o.tunnel() != "" {
				element = "tunnel"
			}
			return Judgement{Node: at, Element: element,
				Terms: []Term{requires("fragments", degree(share, .02, .2)).by(e)},
				Facts: factList{e, fact(metrics.Goodput, "", "", got, mbps(got)+" of goodput")},
				Text: fmt.Sprintf("packets exceed the path MTU and are fragmented: %.0f fragments "+
					"at the %s", most, at)}
		},
		Experiments: always(Experiment{Factor: "mss", Fix: "1300", From: FromTester, Expect: 1,
			Why: "segments that fit are not split: goodput rises at once"}),
		Remedies: []Remedy{
			{System: "linux", Do: "set a tunnel MTU that fits, or clamp the TCP MSS",
				Commands: []string{
					"ip link set dev TUNNEL mtu 1420",
					"nft add rule inet filter forward tcp flags syn tcp option maxseg size set rt mtu"},
				Factor: "mtu", Level: "1420", When: (*Observation).tunnelTooLarge},
			{System: "openwrt", Do: "set the interface MTU, and enable MSS clamping for its zone",
				Commands: []string{
					"uci set network.wg0.mtu=1420", "uci set firewall.@zone[1].mtu_fix=1", "uci commit"},
				When: (*Observation).tunnelTooLarge},
			{System: "routeros", Do: "set the interface MTU, and clamp the TCP MSS", Commands: []string{
				"/interface wireguard set wireguard1 mtu=1420"}, When: (*Observation).tunnelTooLarge},
			{System: "freebsd", Do: "set the interface MTU, and max-mss in pf", Commands: []string{
				"ifconfig wg0 mtu 1420"}, When: (*Observation).tunnelTooLarge},
			{System: "linux", Do: "clamp the TCP MSS to the path's MTU", Commands: []string{
				"nft add rule inet filter forward tcp flags syn tcp option maxseg size set rt mtu"},
				When: func(o *Observation) bool { return !o.tunnelTooLarge() }},
		}}
}
