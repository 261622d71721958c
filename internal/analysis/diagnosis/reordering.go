package diagnosis

import (
	"fmt"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// reordering is packets that overtake each other.
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
				score := ramp(share, .002, .02, -5, 3.5)
				return Judgement{Score: score, Element: "path",
					Text: "packets are reordered: " + unit.Percent(share) + " arrive out of order",
					Facts: factList{fact("reordered", "", "", n, fmt.Sprintf(
						"%.0f packets arrived after one with a higher sequence number", n))}}.weighed(score)
			}
			share, spurious, seen, ok := o.reorderSigns()
			if !ok {
				return missing("the ends' protocol counters were not read")
			}
			// A lost segment makes what follows it wait out of order for a round trip: reordering shows where
			// more of that happens than losses can explain.
			score := ramp(share, .03, .15, -4, 2.5) + ramp(loss, .003, .02, .8, -1.5) +
				ramp(spurious, .1, .5, -.5, 1.5) + ramp(seen, 0, .002, 0, 1.5)
			if score > 0 {
				score += o.wants() - o.windowed()
			}
			j := Judgement{Score: score, Element: "path", GainAtMost: o.gainToTester(),
				Text: fmt.Sprintf("packets are reordered: %s of the segments arrive out of order, "+
					"%s were retransmitted", unit.Percent(share), unit.Percent(loss)),
				Facts: factList{fact("TcpExtTCPOFOQueue", "", "", share, unit.Percent(share)+
					" of the segments arrived out of order"), lossFact(name, loss), fact("TcpExtTCPDSACKRecv",
					"", "", spurious, unit.Percent(spurious)+" of the retransmissions were spurious")}}
			if seen > 0 {
				j.Facts = append(j.Facts, fact("reord_seen", "", "", seen, "the sender saw "+
					unit.Percent(seen)+" of the segments reordered"))
			}
			j.Node, j.Element = o.delaying()
			return j.weighed(ramp(share, .03, .15, -4, 2.5))
		},
		Experiments: streamDoses(0, "reordering slows each connection down: more of them carry more"),
		Remedies: []Remedy{{System: "linux", Do: "keep each flow's packets on one core and one link",
			Commands: []string{"ip link show type bond", "cat /sys/class/net/DEV/queues/rx-*/rps_cpus"},
			Risk:     "each flow then gets only one core or link"},
			{System: "linux", Do: "make senders tolerate more reordering", Commands: []string{
				"sysctl -w net.ipv4.tcp_reordering=30"}, Risk: "real losses are repaired later"}}}
}

// delaying is the port of the load's way whose queue keeps packets waiting, not for a rate: nowhere else are
// they put into another order.
func (o *Observation) delaying() (node, port string) {
	most := 0.0
	for _, at := range o.queuePlaces(o.hops(), false) {
		c, _ := o.columnOf(at.Node, "qdisc", "qlen_packets", at.Port)
		if v, ok := c.Mean(); ok && v > most {
			node, port, most = at.Node, at.Port, v
		}
	}
	if node == "" {
		return "", "path"
	}
	return node, port
}
