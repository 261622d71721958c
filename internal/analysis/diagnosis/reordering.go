package diagnosis

import (
	"fmt"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// reordering returns the rule for packets that overtake each other.
func reordering() Rule {
	return Rule{Class: Reordering, Wasteful: true,
		Label: "packets are reordered", Ends: true,
		Means: "at least 5 % of the segments arrive out of order while few are lost, or 1 % of the UDP " +
			"packets do",
		Judge: func(o *Observation) Judgement {
			loss, name, ok := o.lossOf()
			if !ok {
				return missing("nothing counted lost packets")
			}
			if !o.IsTCP() {
				n, ok := o.Metric("reordered")
				rate, _ := o.Metric(metrics.PacketRate)
				if !ok {
					return missing("packets were counted without their order")
				}
				share := ratio(o.perSecond(n), rate)
				e := fact("reordered", "", "", n, fmt.Sprintf(
					"%.0f packets arrived after one with a higher sequence number", n))
				return Judgement{Element: "path", Facts: factList{e},
					Terms: []Term{requires("out-of-order", degree(share, .002, .02)).by(e),
						contradicts("lossy", 0), supports("spurious", 0), supports("seen-by-sender", 0),
						o.windowed(), contradicts("satisfied", 0)},
					Text: "packets are reordered: " + unit.Percent(share) + " arrive out of order"}
			}
			share, spurious, seen, ok := o.reorderSigns()
			if !ok {
				return missing("the ends' protocol counters were not read")
			}
			j := Judgement{GainAtMost: o.gainToTester(),
				Text: fmt.Sprintf("packets are reordered: %s of the segments arrive out of order, "+
					"%s were retransmitted", unit.Percent(share), unit.Percent(loss)),
				Facts: factList{fact("TcpExtTCPOFOQueue", "", "", share, unit.Percent(share)+
					" of the segments arrived out of order"), lossFact(name, loss), fact("TcpExtTCPDSACKRecv",
					"", "", spurious, unit.Percent(spurious)+" of the retransmissions were spurious")}}
			if seen > 0 {
				j.Facts = append(j.Facts, fact("reord_seen", "", "", seen, "the sender saw "+
					unit.Percent(seen)+" of the segments reordered"))
			}
			// A lost segment makes the following ones wait out of order for an RTT: reordering shows where
			// this happens more often than losses can explain.
			j.Terms = []Term{requires("out-of-order", degree(share, .03, .15)).by(j.Facts[0]),
				contradicts("lossy", degree(loss, .003, .02)), supports("spurious", degree(spurious, .1, .5)),
				supports("seen-by-sender", degree(seen, 0, .002)), o.windowed(), o.satisfied()}
			j.Node, j.Element = o.delaying()
			return j
		},
		Experiments: streamDoses(0, "reordering slows each connection down: more of them carry more"),
		Remedies: []Remedy{{System: "linux", Do: "keep each flow's packets on one core and one link",
			Commands: []string{"ip link show type bond", "cat /sys/class/net/DEV/queues/rx-*/rps_cpus"},
			Risk:     "each flow then gets only one core or link"},
			{System: "linux", Do: "make senders tolerate more reordering", Commands: []string{
				"sysctl -w net.ipv4.tcp_reordering=30"}, Risk: "real losses are repaired later"}}}
}

// delaying returns the port of the load's way whose queue keeps packets waiting, not for a rate, or else the
// devices among which a node spreads them: nowhere else are they reordered.
func (o *Observation) delaying() (node, port string) {
	most := 0.0
	for _, at := range o.queuePlaces(o.hops(), false) {
		c, _ := o.columnOf(at.Node, "qdisc", "qlen_packets", at.Port)
		if v, ok := c.Mean(); ok && v > most {
			node, port, most = at.Node, at.Port, v
		}
	}
	if node != "" {
		return node, port
	}
	for _, h := range o.hops() {
		if parts := o.carriers(h.out, .1, .9); len(parts) > 1 { // such as those of a bond
			return h.out.Node, strings.Join(parts, " and ")
		}
	}
	return "", "path"
}
