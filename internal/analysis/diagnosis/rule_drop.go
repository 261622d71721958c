package diagnosis

import (
	"cmp"
	"math"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
)

// ruleDrop describes packets that a rule or filter drops.
var ruleDrop = rule(RuleDrop, `
	label: a rule or filter drops packets
	means: at least half of the missing packets are dropped in one node, by its kernel's \
		drop reasons, by the counters of its ports or by those of its IP layer, and neither a \
		queue nor a table nor the CPU dropped them
	traits: wasteful to-tester
	explains: at-capacity
	linux: find the rule whose counter grows under load, and raise its limit or remove it
		$ nft list ruleset
		$ iptables -vnL
		$ tc -s filter show dev DEV ingress
		risk: the rule may protect something
	routeros: find the rule whose counter grows under load
		$ /ip firewall filter print stats where action=drop
		risk: the rule may protect something
	freebsd: find the rule whose counter grows under load
		$ pfctl -vsr
		risk: the rule may protect something
`, func(o *Observation) Candidate {
	d := need(o.died())
	share := ratio(d.packets, d.missed)
	found := false
	j := d.candidate()
	cause := "a rule or filter drops them"
	switch {
	case share < .3:
	case d.by == byHeader || d.by == byRoute:
		j.Elsewhere = say("%s, by %s", d, d.by)
		j.Element = "ip"
	case d.reason == "" && o.noRule(d.Node):
		if met(o.diesInside()...) > .5 {
			j.Elsewhere = say("%s, in none of its queues, and no rule may drop them", d)
			j.Element = "ip"
		}
	case d.reason == "":
		cause += ", or what counts no drops"
	case among(d.reason, ruleReasons):
		j = j.facts(fact(metrics.KernelDrops, d.Node, d.reason, d.packets,
			"the kernel's reason is %s", d.reason))
	default:
		j.Elsewhere = say("packets die inside the %s: %s, by the kernel's reason %s", d.Node, d, d.reason)
	}

	if j.Elsewhere != "" {
		j.Score, j.Undecided = absent, j.Elsewhere
		return j.facts(d.died())
	}

	if r, ok := o.ownersRule(d.Node); ok && share >= .3 {
		found = d.reason == "" || r.packets > 0
		j.Element = r.element()
		cause = say("%s may drop them", r)
		if r.packets > 0 {
			cause = say("%s dropped %.0f packets in all trials of the run", r, r.packets)
			j = j.facts(
				j.place().fact("rule_packets", r.packets,
					"the rule's counter grew by %.0f in all trials of the run"))
		}
	}

	outages, _ := o.outages()
	return j.with(o.diesInside()...).
		with(contradicts("outages", yes(outages > 1 && !found)), // see unstable
			contradicts("no-rule", yes(d.reason == "" && o.noRule(d.Node))),
			supports("rule-found", yes(found))).
		text("%s; %s", d, cause)
})

// ruleReasons lists the kernel's drop reasons for rules and filters (include/net/dropreason-core.h).
const ruleReasons = "NETFILTER_DROP TC_INGRESS TC_EGRESS XDP BPF_CGROUP_EGRESS"

// deaths counts the packets that were lost in a router without a drop counter that explains them, and the
// packets missing at the ends.
type deaths struct {
	place
	metric, reason  string // metric of the losses, and the kernel's drop reason, or "" if there is none
	by              string // Death.By of the largest part
	packets, missed float64
	sent            float64 // packets that the load's sender sent
}

// String describes the losses and their place.
func (d deaths) String() string {
	return say("%.0f of the %.0f packets that the ends miss died in the %s", min(d.packets, d.missed),
		d.missed, d.Node)
}

// died returns the number of lost packets as a fact.
func (d deaths) died() Fact {
	switch {
	case d.packets == 0:
		return d.fact(d.metric, 0, "no packet died inside the %s", d.Node)
	case d.missed == 0:
		return d.fact(d.metric, d.packets, "%.0f packets died inside the %s, but the ends miss none",
			d.packets, d.Node)
	}
	return d.fact(d.metric, d.packets, "%s, in none of its queues", d)
}

// diesInside returns terms that require that packets were lost inside a router, and that these losses explain
// the load's loss.
func (o *Observation) diesInside() []Term {
	d, why := o.died()
	if why != "" {
		return []Term{requires("dies-inside", 0)}
	}

	loss, _, _ := o.lossOf()
	loss = max(loss, ratio(min(d.packets, d.missed), d.sent))
	return []Term{requires("dies-inside", ratio(math.Round(d.packets), d.missed), .3, .7).by(d.died()),
		requires("lossy", loss, .0005, .003)}
}

// died returns the node on the load's path whose network stack lost the most packets that no other class
// explains.
func (o *Observation) died() (worst deaths, why string) {
	l := o.Ledger()
	if l == nil || l.MissedPackets == nil {
		return worst, "nothing counted lost packets"
	}

	why = "neither the kernel's drops nor packets at both ports of a router were counted"
	stages := l.Data
	if o.Traffic.ShortFlows != nil { // a connection needs the packets of both directions
		stages = slices.Concat(l.Data, l.Acks)
	}

	sent := *cmp.Or(l.Data[0].In, new(0.0))
	for i, a := range stages {
		if a.Stage != StageIP || a.In == nil {
			continue
		}

		d := deaths{place: place{a.Node, "rules"}, metric: "packets_died", sent: sent}
		largest := Death{}
		for _, x := range a.Died {
			if x.Reason != "" || slices.Contains([]string{uncounted, byHeader, byRoute}, x.By) {
				d.packets += x.Packets
				if x.Packets > largest.Packets {
					largest = x
				}
			}
		}

		d.by = largest.By
		d.reason = largest.Reason
		if d.reason != "" {
			d.metric = metrics.KernelDrops
		}

		d.missed = min(max(d.packets, l.MissedPackets[0]), l.MissedPackets[1])
		if i >= len(l.Data) {
			d.missed, d.sent = d.packets, *a.In
		}

		why = ""
		if d.packets >= worst.packets {
			worst = d
		}
	}

	return worst, why
}

// lostInIP returns the number of packets that a node's IP layer received and neither delivered, forwarded nor
// counted as an error or a fragment: rules at its hooks dropped them. A merged packet counts once.
func (o *Observation) lostInIP(at place) (packets float64, ok bool) {
	received, ok := o.grew(at.Node, "IpInReceives Ip6InReceives")
	gone, _ := o.grew(at.Node, "IpInDelivers Ip6InDelivers IpForwDatagrams Ip6OutForwDatagrams "+
		"IpInHdrErrors IpInAddrErrors IpInDiscards IpExtInNoRoutes IpFragFails IpReasmReqds Ip6InHdrErrors "+
		"Ip6InAddrErrors Ip6InDiscards Ip6InNoRoutes Ip6InTooBigErrors Ip6ReasmReqds")
	whole, _ := o.grew(at.Node, "IpReasmOKs Ip6ReasmOKs")
	return max(received-gone+whole-o.total(place{Node: at.Node}, "conntrack", "drop"), 0), ok
}

const (
	maxFrame = 1518.0 // in bytes; larger frames consist of merged packets
	ring     = 256.0  // packets that a device may hold before it counts them as sent
)

// frames holds the packets and bytes that passed a port in the window.
type frames struct{ packets, bytes float64 }

func (f frames) size() float64 { return ratio(f.bytes, f.packets) }

func (o *Observation) passed(at place, direction string) frames {
	return frames{o.total(at, "netdev", direction+"_packets"), o.total(at, "netdev", direction+"_bytes")}
}

// missed returns the number of the load's packets that are missing at the ends: retransmitted segments or
// lost datagrams.
func (o *Observation) missed() (n float64, why string) {
	if o.IsTCP() {
		if _, ok := o.resent(); !ok {
			return 0, "nothing counted lost packets"
		}
		return o.value(metrics.Retransmits), ""
	}

	for _, f := range o.Traffic.Flows {
		if f.Packets == nil {
			return 0, "nothing counted lost packets"
		}

		n += float64(f.Packets.Lost)
	}
	return n, ""
}
