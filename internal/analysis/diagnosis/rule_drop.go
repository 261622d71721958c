package diagnosis

import (
	"fmt"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// ruleDrop returns the rule for packets that die by a rule or filter, and not in a queue.
func ruleDrop() Rule {
	return Rule{Class: RuleDrop, Wasteful: true, Label: "a rule or filter drops packets",
		Means: "at least half of the packets that the ends miss die in one node, by its kernel's drop " +
			"reasons, by the counters of its ports or by those of its IP layer, and neither a queue nor a " +
			"table nor the CPU dropped them",
		Judge: func(o *Observation) Judgement {
			d, why := o.died()
			if why != "" {
				return missing(why)
			}
			share := ratio(d.packets, d.missed)
			words := fmt.Sprintf("%.0f of the %.0f packets that the ends miss died in the %s", min(d.packets,
				d.missed), d.missed, d.node)
			j := Judgement{Node: d.node, Element: "rules", GainAtMost: o.gainToTester(),
				Text:  "packets die in the " + d.node + ": " + words + "; a rule or filter drops them",
				Facts: factList{fact(d.metric, d.node, "rules", d.packets, words+", in none of its queues")}}
			byRule, found, counts := false, false, false
			switch {
			case share < .3:
			case d.by == byHeader || d.by == byRoute:
				j.Place, j.Element = "packets die in the "+d.node+": "+words+", by "+d.by, "ip"
			case d.reason == "":
				j.Text += ", or what counts no drops"
			case slices.Contains(ruleReasons, d.reason):
				byRule = true
				j.Facts = append(j.Facts, fact(metrics.KernelDrops, d.node, d.reason, d.packets,
					"the kernel's reason is "+d.reason))
			default:
				j.Place = "packets die inside the " + d.node + ": " + words + ", by the kernel's reason " +
					d.reason
			}
			if j.Place != "" {
				j.Score, j.Undecided = absent, j.Place
				return j
			}
			if r, ok := o.ownersRule(d.node); ok && share >= .3 {
				found, counts = d.reason == "", r.packets > 0
				j.Element = fmt.Sprintf("rule %d", r.Handle)
				j.Text = "packets die in the " + d.node + ": " + words + "; " + r.String() + " may drop them"
				if counts {
					j.Text = fmt.Sprintf("packets die in the %s: %s dropped %.0f packets in the run", d.node,
						r, r.packets)
					j.Facts = append(j.Facts, fact("rule_packets", d.node, j.Element, r.packets,
						fmt.Sprintf("the rule's counter grew by %.0f in the run", r.packets)))
				}
			}
			outages, _ := o.outages()
			j.Terms = append(o.diesInside(),
				contradicts("outages", yes(outages > 1 && !found && !counts)), // see unstable
				contradicts("no-rule", yes(d.reason == "" && o.noRule(d.node))),
				supports("kernel-reason", yes(byRule)*degree(share, .5, .8)),
				supports("rule-found", yes(found)), supports("rule-counts", yes(counts)))
			return j
		},
		Remedies: []Remedy{
			{System: "linux", Do: "find the rule whose counter grows under load, and raise its limit or " +
				"remove it", Commands: []string{"nft list ruleset", "iptables -vnL",
				"tc -s filter show dev DEV ingress"}, Risk: "the rule may protect something"},
			{System: "routeros", Do: "find the rule whose counter grows under load",
				Commands: []string{"/ip firewall filter print stats where action=drop"},
				Risk:     "the rule may protect something"},
			{System: "freebsd", Do: "find the rule whose counter grows under load",
				Commands: []string{"pfctl -vsr"}, Risk: "the rule may protect something"},
		}}
}

// ruleReasons lists the kernel's drop reasons for rules and filters (include/net/dropreason-core.h).
var ruleReasons = []string{"NETFILTER_DROP", "TC_INGRESS", "TC_EGRESS", "XDP", "BPF_CGROUP_EGRESS"}

// deaths counts packets that died in a router without being counted as its drops, against those that the ends
// miss.
type deaths struct {
	node, metric, reason string // reason: the kernel's, "" where it gives none
	by                   string // Death.By of most
	packets, missed      float64
	sent                 float64 // by the load's sender
}

// diesInside returns terms for how far the deaths in a router are the load's loss.
func (o *Observation) diesInside() []Term {
	d, why := o.died()
	if why != "" {
		return []Term{requires("dies-inside", 0)}
	}
	loss, _, _ := o.lossOf()
	loss = max(loss, ratio(min(d.packets, d.missed), d.sent))
	share := ratio(d.packets, d.missed)
	e := fact(d.metric, d.node, "rules", d.packets, fmt.Sprintf("%.0f of the %.0f packets that the ends "+
		"miss died in the %s, in none of its queues", min(d.packets, d.missed), d.missed, d.node))
	return []Term{requires("dies-inside", degree(share, .3, .7)).by(e),
		requires("lossy", degree(loss, .0005, .003)), requires("many", degree(d.missed, 3, 10)),
		contradicts("more-than-missed", degree(share, 2, 4))}
}

// died finds the node of the load's way in whose network stack most packets died that no other class covers.
func (o *Observation) died() (worst deaths, why string) {
	l := o.Ledger()
	if l == nil || l.MissedPackets == nil {
		return worst, "nothing counted lost packets"
	}
	why = "neither the kernel's drops nor packets at both ports of a router were counted"
	sent := 0.0
	if first := l.Data[0]; first.In != nil {
		sent = *first.In
	}
	for _, a := range l.Data {
		if a.Stage != StageIP || a.In == nil {
			continue
		}
		d, most := deaths{node: a.Node, metric: "packets_died", sent: sent}, 0.0
		for _, x := range a.Died {
			if x.Reason == "" && !slices.Contains([]string{uncounted, byHeader, byRoute}, x.By) {
				continue
			}
			if d.packets += x.Packets; x.Packets <= most {
				continue
			}
			if d.by, d.reason, most = x.By, x.Reason, x.Packets; d.reason != "" {
				d.metric = metrics.KernelDrops
			}
		}
		d.missed = min(max(d.packets, l.MissedPackets[0]), l.MissedPackets[1])
		if why = ""; d.packets >= worst.packets {
			worst = d
		}
	}
	return worst, why
}

// lostInIP counts the packets, perhaps merged ones, that the IP layer of a port's node received and neither
// delivered nor forwarded, nor counted as faulty, too large or fragments: rules at its hooks drop these.
func (o *Observation) lostInIP(at record.TopoPort) (packets float64, ok bool) {
	received, ok := o.grew(at.Node, "IpInReceives", "Ip6InReceives")
	gone, _ := o.grew(at.Node, "IpInDelivers", "Ip6InDelivers", "IpForwDatagrams", "Ip6OutForwDatagrams",
		"IpInHdrErrors", "IpInAddrErrors", "IpInDiscards", "IpExtInNoRoutes", "IpFragFails", "IpReasmReqds",
		"Ip6InHdrErrors", "Ip6InAddrErrors", "Ip6InDiscards", "Ip6InNoRoutes", "Ip6InTooBigErrors",
		"Ip6ReasmReqds")
	whole, _ := o.grew(at.Node, "IpReasmOKs", "Ip6ReasmOKs")
	tracked, _ := o.Sum(at.Node, "conntrack", "drop", nil)
	lost := max(received-gone+whole-tracked, 0)
	return lost, ok
}

const (
	maxFrame = 1518.0 // bytes above which a packet at a port is a merged one
	ring     = 256.0  // packets that a device may hold before it counts them as sent
)

// frames counts the packets and bytes that passed a port in the window.
type frames struct{ packets, bytes float64 }

func (f frames) size() float64 { return ratio(f.bytes, f.packets) }

func (o *Observation) passed(node, port, direction string) (f frames) {
	is := func(label string) bool { return label == port }
	f.packets, _ = o.Sum(node, "netdev", direction+"_packets", is)
	f.bytes, _ = o.Sum(node, "netdev", direction+"_bytes", is)
	return f
}

// missed counts the packets of the load that the ends miss: retransmitted segments, or lost datagrams.
func (o *Observation) missed() (n float64, why string) {
	if o.IsTCP() {
		_, n, ok := o.resent()
		if !ok {
			return 0, "nothing counted lost packets"
		}
		return n, ""
	}
	for _, f := range o.Trial.Traffic.Flows {
		if f.Packets == nil {
			return 0, "nothing counted lost packets"
		}
		n += float64(f.Packets.Lost)
	}
	return n, ""
}
