package diagnosis

import (
	"fmt"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// wireguardQueue returns the rule for a tunnel device that drops packets because its own queue is full.
func wireguardQueue() Rule {
	return Rule{Class: WireguardQueue, Label: "the tunnel device's queue overflows",
		Means: "the tunnel device dropped at least 2 % of its packets before sending them; if the tunnel's " +
			"process is CPU-bound, that is a symptom",
		Judge: func(o *Observation) Judgement {
			tunnel := o.tunnel()
			if tunnel == "" {
				return Judgement{Score: absent}
			}
			best, behind := missing("the tunnel device has no counters"), 0.0
			if s, why := o.systemOf(); why == "" && factor.InUserspace(tunnel) {
				behind = degree(s.Full.Busy, .7, .93)
			}
			for _, node := range o.nodes() {
				for _, device := range o.tunnelDevices(node) {
					drops, ok := o.Sum(node, "netdev", "tx_dropped", only(device))
					sent, ok2 := o.Sum(node, "netdev", "tx_packets", only(device))
					if !ok || !ok2 {
						continue
					}
					queue, _ := o.Sum(node, "qdisc", "drops", only(device))
					drops += queue
					share := ratio(drops, sent+drops)
					lost := against(fact("tx_dropped", node, device, drops, fmt.Sprintf("%s dropped %.0f "+
						"packets before sending, %.0f were sent", device, drops, sent)), sent)
					best = likelier(best, Judgement{Node: node, Element: device, Facts: factList{lost},
						Terms: []Term{requires("drops", degree(share, .0005, .02)).by(lost)},
						Text: fmt.Sprintf("the queue of tunnel device %s on %s overflows: %s of its packets "+
							"were dropped", device, node, unit.Percent(share))})
				}
			}
			if best.NotExamined != "" {
				return best
			}
			return best.with(contradicts("full-core", behind))
		},
		Remedies: []Remedy{{System: "linux", Do: "lengthen the tunnel device's queue",
			Commands: []string{"ip link set wg0 txqueuelen 1000"}, Risk: "more latency",
			Factor: "txqueuelen", Level: "1000"},
			{System: "linux", Do: "shape below what the tunnel's workers can sustain",
				Risk: "costs a few per cent of the rate"}}}
}

// tunnelDevices lists a node's tunnel devices: those that are neither ports nor loopback.
func (o *Observation) tunnelDevices(node string) []string {
	columns, _ := o.Columns(node, "netdev", "tx_packets")
	var out []string
	for _, c := range columns {
		grown, _ := c.Grew()
		if c.Label != "lo" && c.Label != "" && grown > 0 && node != record.HostNode && !o.isPort(node,
			c.Label) &&
			!strings.HasPrefix(c.Label, "ifb") {
			out = append(out, c.Label)
		}
	}
	return out
}
