package diagnosis

import (
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
)

// reordering describes packets that overtake each other.
var reordering = rule(Reordering, `
	label: packets are reordered
	means: at least 5 % of the TCP segments arrive out of order and few are lost; or at least 1 % of \
		the UDP packets arrive out of order
	traits: ends wasteful to-tester any-rate
	planted: reorder
	linux: keep each flow's packets on one core and one link
		$ ip link show type bond
		$ cat /sys/class/net/DEV/queues/rx-*/rps_cpus
		risk: each flow then gets only one core or link
	linux: make senders tolerate more reordering
		$ sysctl -w net.ipv4.tcp_reordering=30
		risk: real losses are repaired later
`, func(o *Observation) Candidate {
	loss, lost, ok := o.lossOf()
	needs(ok, "nothing counted lost packets")
	if !o.IsTCP() {
		n, ok := o.Metric(metrics.Reordered)
		needs(ok, "packets were counted without their order")
		share := ratio(o.perSecond(n), o.value(metrics.PacketRate))
		return wholePath.candidate(requires("out-of-order", share, .002, .02).by(
			seen(metrics.Reordered, n, "%.0f packets arrived after one with a higher sequence number"))).
			text("packets are reordered: %h arrive out of order", share)
	}

	share, spurious, bySender, ok := o.reorderSigns()
	needs(ok, "the ends' protocol counters were not read")
	// After a lost segment, the following segments arrive out of order for an RTT. If more segments are
	// out of order than the losses explain, packets were reordered.
	late := seen("TcpExtTCPOFOQueue", share, "%h of the segments arrived out of order")
	if share < minReordered {
		late.Text = "only " + late.Text
	}

	j := o.delaying().candidate(requires("out-of-order", share, .03, .15).by(late),
		contradicts("lossy", loss, .003, .02),
		supports("seen-by-sender", bySender, 0, .002)).
		facts(lost, seen("TcpExtTCPDSACKRecv", spurious, "%h of the retransmissions were spurious")).
		text("packets are reordered: %h of the segments arrive out of order, %h were retransmitted",
			share, loss)
	satisfied := o.satisfied()
	satisfied.By = nil
	j = j.with(satisfied)
	if bySender > 0 {
		j = j.facts(seen("reord_seen", bySender, "the sender saw %h of the segments reordered"))
	}

	return j
}, streamSteps(0, "reordering slows each connection down: more of them carry more"))

// minReordered is the share of segments out of order that counts as unusual.
const minReordered = .05

// delaying returns the port on the load's path whose queue holds packets longest. If no queue holds packets,
// it returns the devices over which a node spreads the packets. If there are no such devices either, it
// returns wholePath.
func (o *Observation) delaying() place {
	at := greatest(o.queuePlaces(o.hops()), func(at place) float64 {
		packets, _ := o.columnAt(at, "qdisc", "qlen_packets").Mean()
		return packets
	})
	if at.Node != "" {
		return at
	}

	for _, h := range o.hops() {
		parts := o.carriers(h.out, .1, .9)
		if len(parts) > 1 { // such as the members of a bond
			return place{h.out.Node, strings.Join(parts, " and ")}
		}
	}

	return wholePath
}
