package diagnosis

import (
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// pmtuBlackHole describes large packets that are lost without an ICMP error. This loss may make the
// trial itself fail.
var pmtuBlackHole = rule(PMTUBlackHole, `
	label: a PMTU black hole drops large packets
	means: packets as large as the path MTU do not come back while small ones do; or almost \
		nothing arrives while probes are answered, and a node drops packets that would need \
		fragmentation
	traits: ends wasteful of-failed any-rate
	linux: let ICMP errors through, or clamp the TCP MSS
		$ nft add rule inet filter output icmp type destination-unreachable accept
		$ nft add rule inet filter forward tcp flags syn tcp option maxseg size set rt mtu
		plan: mss_clamp=pmtu
	openwrt: enable MSS clamping for the zone
		$ uci set firewall.@zone[1].mtu_fix=1
		$ uci commit firewall
		$ service firewall restart
	routeros: clamp the TCP MSS
		$ /ip firewall mangle add chain=forward protocol=tcp tcp-flags=syn action=change-mss \
		new-mss=clamp-to-pmtu passthrough=yes
	freebsd: let pf pass ICMP errors, and set max-mss
		$ pfctl -sr
`, func(o *Observation) Candidate {
	drops, at, known := o.maxOnPath("IpFragFails Ip6InTooBigErrors")
	sender, _ := o.Ends()
	told, _ := o.grew(sender, "IcmpInDestUnreachs Icmp6InPktTooBigs")
	if told > 0 && drops > 0 {
		return excluded(fact("IcmpInDestUnreachs", sender, "ip", told,
			"the %s was told %.0f times that its packets do not fit", sender, told))
	}

	j := o.swallows()
	if at != "" {
		leaves := place{Node: at} // the port through which the load's packets leave the node
		for _, h := range slices.Backward(o.hops()) {
			if h.out.Node == at {
				leaves = h.out
			}
		}

		j = leaves.candidate().
			text("a PMTU black hole at the %s: large packets are dropped silently", at).
			facts(fact("IpFragFails", at, "ip", drops,
				"the %s dropped %.0f packets larger than the next link's MTU", at, drops))
	}

	f := o.Failure
	if f != nil {
		needs(f.Phase == record.PhaseVerify && strings.Contains(f.Error, "do not come back"),
			"the trial failed: "+f.Error)
		return j.facts(Fact{Metric: "path_mtu", Text: f.Error}).with(
			requires("little-arrives", 1))
	}

	got, ok := o.Metric(metrics.Goodput)
	needs(ok, "no goodput was measured")
	timeouts, _ := o.grew(sender, "TcpExtTCPTimeouts")
	e := seen(metrics.Goodput, got, "%b of goodput, with %g TCP timeouts", got, timeouts)
	if got > 1e6 || !known && timeouts == 0 {
		return excluded(e)
	}

	return j.facts(e).with(requires("little-arrives", got, 1e6, 2e5),
		contradicts("no-drop", yes(known && drops == 0)))
}, removing(factor.MSS, "1200", "small segments get through a PMTU black hole: goodput recovers"))

// swallows returns a candidate for a path that drops large packets although no MTU on it is known to be too
// small. Its text names other possible causes.
func (o *Observation) swallows() Candidate {
	j := candidate().text("a PMTU black hole on the path: large packets are dropped silently")
	found := func(at place, text string, values ...any) {
		if j.Node == "" {
			j = j.at(at)
			j.Text += "; " + say(text, values...)
		}
	}
	for _, node := range o.Routers() {
		if r, ok := o.ownersRule(node); ok {
			found(place{node, r.element()}, "%s of the %s may drop them", r, node)
		}
	}

	l := o.Ledger()
	if l != nil {
		if a := greatest(l.Data, Account.DiedPackets); a.Died != nil {
			found(place{a.Node, a.Element}, "%.0f packets die at the %s's %s", a.DiedPackets(), a.Node,
				a.Element)
		}
	}

	for _, q := range o.filters(o.hops()) {
		if q.drops > 0 {
			found(q.place, "a filter of traffic control at %s drops packets", q)
		}
	}

	for _, node := range o.Routers() {
		n := o.total(place{Node: node}, "netdev", "tx_dropped")
		if n > 0 {
			found(place{Node: node}, "devices of the %s dropped %.0f packets", node, n)
		}
	}

	return j
}
