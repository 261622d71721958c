package diagnosis

import (
	"fmt"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// pmtuBlackHole returns the rule for large packets that vanish without an ICMP error. It also shows in failed
// trials.
func pmtuBlackHole() Rule {
	return Rule{Class: PMTUBlackHole, Wasteful: true,
		Label: "a PMTU black hole drops large packets", Ends: true, OfFailed: true,
		Means: "packets as large as the path MTU do not come back while small ones do; or almost nothing " +
			"arrives while probes are answered, and a node drops packets that would need fragmentation",
		Judge: func(o *Observation) Judgement {
			drops, at, known := o.maxOnPath([]string{"IpFragFails", "Ip6InTooBigErrors"})
			j := Judgement{Node: at, Element: o.narrow(at),
				Text: "a PMTU black hole on the path: large packets are dropped silently"}
			if at != "" {
				j.Text = "a PMTU black hole at the " + at + ": large packets are dropped silently"
				j.Facts = factList{fact("IpFragFails", at, "ip", drops, fmt.Sprintf(
					"the %s dropped %.0f packets larger than the next link's MTU", at, drops))}
			}
			for _, node := range o.Routers() {
				if r, ok := o.ownersRule(node); ok && at == "" {
					j.Node, j.Element = node, fmt.Sprintf("rule %d", r.Handle)
					j.Text += "; " + r.String() + " of the " + node + " may drop them"
				}
			}
			if l := o.Ledger(); l != nil && j.Node == "" {
				if a, ok := deadliest(l.Data); ok {
					j.Node, j.Element = a.Node, a.Element
					j.Text += fmt.Sprintf("; %.0f packets die at the %s's %s", a.DiedPackets(),
						a.Node, a.Element)
				}
			}
			filters, _ := o.queues(true)
			for _, q := range filters {
				if q.drops > 0 && j.Node == "" {
					j.Node, j.Element = q.node, q.port
					j.Text += "; a filter of traffic control at " + q.place() + " drops packets"
				}
			}
			for _, node := range o.Routers() {
				if n, _ := o.Sum(node, "netdev", "tx_dropped", nil); n > 0 && j.Node == "" {
					j.Node = node
					j.Text += fmt.Sprintf("; devices of the %s dropped %.0f packets", node, n)
				}
			}
			sender, _ := o.Ends()
			if told, _ := o.grew(sender, "IcmpInDestUnreachs", "Icmp6InPktTooBigs"); told > 0 && drops > 0 {
				return Judgement{Score: absent, Facts: factList{fact("IcmpInDestUnreachs", sender, "ip", told,
					fmt.Sprintf("the %s was told %.0f times that its packets do not fit", sender, told))}}
			}
			if f := o.Trial.Failure; f != nil {
				if f.Phase != record.PhaseVerify || !strings.Contains(f.Error, "do not come back") {
					return missing("the trial failed: " + f.Error)
				}
				j.Facts = append(j.Facts, evidence.Evidence{Metric: "path_mtu", Text: f.Error})
				return j.with(blackHole(1, drops, 0, true, false)...)
			}
			got, ok := o.Metric(metrics.Goodput)
			if !ok {
				return missing("no goodput was measured")
			}
			timeouts, _ := o.grew(sender, "TcpExtTCPTimeouts")
			e := fact(metrics.Goodput, "", "", got, mbps(got)+" of goodput, with "+
				unit.Significant(timeouts, 3)+" TCP timeouts")
			if got > 1e6 || !known && timeouts == 0 {
				return Judgement{Score: absent, Facts: factList{e}}
			}
			j.Facts = append(j.Facts, e)
			return j.with(blackHole(degree(got, 1e6, 2e5), drops, timeouts, false, known && drops == 0)...)
		},
		Experiments: always(Experiment{Factor: "mss", Fix: "1200", From: FromTester, Expect: 1,
			Why: "small segments get through a PMTU black hole: goodput recovers"}),
		Remedies: []Remedy{
			{System: "linux", Do: "let ICMP errors through, or clamp the TCP MSS", Commands: []string{
				"nft add rule inet filter output icmp type destination-unreachable accept",
				"nft add rule inet filter forward tcp flags syn tcp option maxseg size set rt mtu"},
				Factor: "mss_clamp", Level: "pmtu"},
			{System: "openwrt", Do: "enable MSS clamping for the zone", Commands: []string{
				"uci set firewall.@zone[1].mtu_fix=1", "uci commit firewall", "service firewall restart"}},
			{System: "routeros", Do: "clamp the TCP MSS", Commands: []string{"/ip firewall mangle add " +
				"chain=forward " +
				"protocol=tcp tcp-flags=syn action=change-mss new-mss=clamp-to-pmtu passthrough=yes"}},
			{System: "freebsd", Do: "let pf pass ICMP errors, and set max-mss", Commands: []string{"pfctl " +
				"-sr"}},
		}}
}

// blackHole requires that little arrives. Vanishing large probes, drops and timeouts support it; watched
// nodes that drop nothing contradict it.
func blackHole(little, drops, timeouts float64, vanish, noDrop bool) []Term {
	return []Term{requires("little-arrives", little), contradicts("no-drop", yes(noDrop)),
		supports("vanish", yes(vanish)), supports("drops", degree(drops, 0, 3)),
		supports("timeouts", degree(timeouts, 0, 2))}
}

// narrow returns the port by which a node's packets of the load leave, "" if it has none on the way.
func (o *Observation) narrow(node string) string {
	for _, h := range o.hops() {
		if h.out.Node == node {
			return h.out.Port
		}
	}
	return ""
}
