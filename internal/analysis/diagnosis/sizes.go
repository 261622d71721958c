package diagnosis

import (
	"fmt"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// wayNodes are the nodes that the load's packets pass.
func (o *Observation) wayNodes() []string {
	var out []string
	for _, h := range o.hops() {
		for _, node := range []string{h.out.Node, h.in.Node} {
			if !slices.Contains(out, node) {
				out = append(out, node)
			}
		}
	}
	return out
}

// fragmentation is packets that do not fit, and are sent in parts.
func fragmentation() Rule {
	return Rule{Class: Fragmentation, Label: "packets are sent in fragments: the tunnel's MTU is too large",
		Means: "a node makes or joins fragments of 10 % of the load's packets or more",
		Judge: func(o *Observation) Judgement {
			got, _ := o.Metric(metrics.Goodput)
			packets := got / 8 * o.Trial.Window.Seconds() / 1400
			most, at, known := 0.0, "", false
			for _, node := range o.wayNodes() {
				made, ok := o.grew(node, "IpFragCreates", "Ip6FragCreates")
				joined, _ := o.grew(node, "IpReasmReqds", "Ip6ReasmReqds")
				known = known || ok
				if v := max(made, joined); v > most {
					most, at = v, node
				}
			}
			if !known {
				return missing("no node's protocol counters were read")
			}
			share := most / 2 / max(packets, 20)
			e := fact("IpFragCreates", at, "ip", most, fmt.Sprintf("%.0f fragments in the window, with %s "+
				"of the "+
				"packets", most, unit.Percent(min(share, 1))))
			if most < 20 {
				return Judgement{Score: absent, Facts: []evidence.Evidence{e}}
			}
			element := "ip"
			if o.tunnel() != "" {
				element = "tunnel"
			}
			return Judgement{Score: ramp(share, .02, .2, -3, 5.2) + o.wants()/3, Node: at, Element: element,
				Facts: []evidence.Evidence{e, fact(metrics.Goodput, "", "", got, mbps(got)+" arrived")},
				Text: fmt.Sprintf("packets are too large for the path and sent in fragments: %.0f of them "+
					"at the %s",
					most, at)}
		},
		Experiments: func(o *Observation, j Judgement) []Experiment {
			return []Experiment{{Class: j.Class, Factor: "mss", Doses: []string{"1360", "1300", "1200"},
				From: "tester", Expect: 0, Why: "segments that fit go in one piece: goodput rises at once"}}
		},
		Remedies: []Remedy{
			{System: "linux", Do: "give the tunnel an MTU that fits, or clamp TCP's segments",
				Commands: []string{
					"ip link set dev TUNNEL mtu 1420",
					"nft add rule inet filter forward tcp flags syn tcp option maxseg size set rt mtu"},
				Factor: "mtu", Level: "1420"},
			{System: "openwrt", Do: "set the interface's MTU, and MSS clamping of its zone",
				Commands: []string{
					"uci set network.wg0.mtu=1420", "uci set firewall.@zone[1].mtu_fix=1", "uci commit"}},
			{System: "routeros", Do: "set the interface's MTU, and clamp TCP's segments", Commands: []string{
				"/interface wireguard set wireguard1 mtu=1420"}},
			{System: "freebsd", Do: "set the interface's MTU, and max-mss in pf", Commands: []string{
				"ifconfig wg0 mtu 1420"}},
		}}
}

// pmtuBlackHole is large packets that vanish, and nobody is told. It shows in trials that failed, too.
func pmtuBlackHole() Rule {
	return Rule{Class: PMTUBlackHole, Label: "large packets vanish, and nobody is told", Ends: true,
		OfFailed: true,
		Means: "packets of the path's MTU do not come back though small ones do, or nearly nothing arrives " +
			"though " +
			"probes are answered, while a node drops packets that would need fragments",
		Judge: func(o *Observation) Judgement {
			var facts []evidence.Evidence
			drops, at, known := 0.0, "", false
			for _, node := range o.wayNodes() {
				v, ok := o.grew(node, "IpFragFails", "Ip6InTooBigErrors")
				known = known || ok
				if v > drops {
					drops, at = v, node
				}
			}
			if drops > 0 {
				facts = append(facts, fact("IpFragFails", at, "ip", drops, fmt.Sprintf(
					"the %s dropped %.0f packets that were larger than the next link's MTU", at, drops)))
			}
			j := Judgement{Node: at, Element: o.narrow(at), Facts: facts,
				Text: "large packets vanish on the path, and nobody is told that they are too large"}
			if at != "" {
				j.Text = "large packets vanish at the " + at + ", which tells nobody that they are too large"
			}
			if f := o.Trial.Failure; f != nil {
				if f.Phase != record.PhaseVerify || !strings.Contains(f.Error, "do not come back") {
					return missing("the trial failed: " + f.Error)
				}
				j.Score = 3 + ramp(drops, 0, 3, 0, 2)
				j.Facts = append(j.Facts, evidence.Evidence{Metric: "path_mtu", Text: f.Error})
				return j
			}
			got, ok := o.Metric(metrics.Goodput)
			if !ok {
				return missing("there is no goodput")
			}
			sender, _ := o.Ends()
			timeouts, _ := o.grew(sender, "TcpExtTCPTimeouts")
			e := fact(metrics.Goodput, "", "", got, mbps(got)+" arrived, with "+
				unit.Significant(timeouts, 3)+" timeouts of TCP")
			if got > 1e6 || !known && timeouts == 0 {
				return Judgement{Score: absent, Facts: []evidence.Evidence{e}}
			}
			j.Score = ramp(got, 2e5, 1e6, 1, -4) + ramp(drops, 0, 3, 0, 3) + ramp(timeouts, 0, 2, -1, 1)
			j.Facts = append(j.Facts, e)
			return j
		},
		Experiments: func(_ *Observation, j Judgement) []Experiment {
			return []Experiment{{Class: j.Class, Factor: "mss", Doses: []string{"1200", "1000", "536"},
				From: "tester", Expect: 0, Why: "small segments pass a black hole of large packets: " +
					"goodput appears"}}
		},
		Remedies: []Remedy{
			{System: "linux", Do: "let ICMP errors pass, or clamp TCP's segments", Commands: []string{
				"nft add rule inet filter output icmp type destination-unreachable accept",
				"nft add rule inet filter forward tcp flags syn tcp option maxseg size set rt mtu"}},
			{System: "openwrt", Do: "switch MSS clamping of the zone on", Commands: []string{
				"uci set firewall.@zone[1].mtu_fix=1", "uci commit firewall", "service firewall restart"}},
			{System: "routeros", Do: "clamp TCP's segments", Commands: []string{"/ip firewall mangle add " +
				"chain=forward " +
				"protocol=tcp tcp-flags=syn action=change-mss new-mss=clamp-to-pmtu passthrough=yes"}},
			{System: "freebsd", Do: "let pf pass ICMP errors, and set max-mss", Commands: []string{"pfctl " +
				"-sr"}},
		}}
}

// narrow is the port by which a node's packets of the load leave, "" if it is none of the way's.
func (o *Observation) narrow(node string) string {
	for _, h := range o.hops() {
		if h.out.Node == node {
			return h.out.Port
		}
	}
	return ""
}
