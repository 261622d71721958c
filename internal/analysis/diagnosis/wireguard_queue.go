package diagnosis

import "github.com/chokepoint-lab/chokepoint/internal/record"

// wireguardQueue describes a tunnel device that drops packets because its own queue is full.
var wireguardQueue = rule(WireguardQueue, `
	label: the tunnel device's queue overflows
	means: the tunnel device dropped at least 2 % of its packets before sending them; if the \
		tunnel's process is CPU-bound, that is a symptom
	planted: tunnel_queue
	linux: lengthen the tunnel device's queue
		$ ip link set wg0 txqueuelen 1000
		risk: more latency
		plan: txqueuelen=1000
	linux: shape below what the tunnel's workers can sustain
		risk: costs a few per cent of the rate
`, func(o *Observation) Candidate {
	if o.tunnel() == "" {
		return excluded()
	}

	// Devices that sent packets and are neither ports nor the loopback device nor an ifb belong to tunnels.
	best := missing("the tunnel device has no counters")
	for _, node := range o.nodes() {
		columns, _ := o.Columns(node, "netdev", "tx_packets")
		for _, c := range columns {
			at := place{node, c.Label}
			sent, _ := c.Grew()
			if sent <= 0 || c.Label == "" || node == record.HostNode || !o.extra(node, c.Label) {
				continue
			}

			drops := o.total(at, "netdev", "tx_dropped") + o.total(at, "qdisc", "drops")
			share := ratio(drops, sent+drops)
			best = likelier(best, at.candidate(requires("drops", share, .0005, .02).by(
				against(at.fact("tx_dropped", drops,
					"%s dropped %.0f packets before sending, %.0f were sent", c.Label, drops, sent),
					sent))).text(
				"the queue of tunnel device %s on %s overflows: %h of its packets were dropped",
				c.Label, node, share))
		}
	}

	return best
})
