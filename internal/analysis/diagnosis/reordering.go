package diagnosis

import (
	"fmt"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// reordering is packets that overtake each other.
func reordering() Rule {
	return Rule{Class: Reordering, Label: "packets overtake each other", Ends: true,
		Means: "5 % of the segments or more arrive out of order although few are lost, or 1 % of UDP's " +
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
					return missing("this way of counting packets does not see their order")
				}
				share := ratio(o.perSecond(n), rate)
				return Judgement{Score: ramp(share, .002, .02, -5, 3.5), Element: "path",
					Text: "packets overtake each other: " + unit.Percent(share) + " arrive out of order",
					Facts: []evidence.Evidence{fact("reordered", "", "", n, fmt.Sprintf(
						"%.0f packets arrived after one with a higher number", n))}}
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
				Text: fmt.Sprintf("packets overtake each other: %s of the segments arrive out of order, "+
					"%s were sent again", unit.Percent(share), unit.Percent(loss)),
				Facts: []evidence.Evidence{fact("TcpExtTCPOFOQueue", "", "", share, unit.Percent(share)+
					" of the segments arrived out of order"), lossFact(name, loss), fact("TcpExtTCPDSACKRecv",
					"", "",
					spurious, unit.Percent(spurious)+" of what was sent again had arrived already")}}
			if seen > 0 {
				j.Facts = append(j.Facts, fact("reord_seen", "", "", seen, "the sender saw "+
					unit.Percent(seen)+" of the segments overtaken"))
			}
			j.Node, j.Element = o.delaying()
			return j
		},
		Experiments: streamDoses(0, "reordering slows each connection: more of them carry more"),
		Remedies: []Remedy{{System: "linux", Do: "do not spread one flow's packets over cores or links",
			Commands: []string{"ip link show type bond", "cat /sys/class/net/DEV/queues/rx-*/rps_cpus"},
			Risk:     "one flow has one core or link then"},
			{System: "linux", Do: "let senders bear more reordering", Commands: []string{
				"sysctl -w net.ipv4.tcp_reordering=30"}, Risk: "real losses are repaired later"}}}
}

// delaying is the port of the load's way whose queue keeps packets waiting, not for a rate: nowhere else are
// they put into another order.
func (o *Observation) delaying() (node, port string) {
	most := 0.0
	for _, h := range o.hops() {
		columns, _ := o.Columns(h.out.Node, "qdisc", "qlen_packets")
		for _, c := range columns {
			if v, ok := c.Mean(); ok && c.Label == h.out.Port && v > most {
				node, port, most = h.out.Node, h.out.Port, v
			}
		}
	}
	if node == "" {
		return "", "path"
	}
	return node, port
}
