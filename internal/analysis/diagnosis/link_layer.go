package diagnosis

import (
	"fmt"

	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// linkLayer returns the rule for a link that is slower than it could be, damages frames, or asks for pauses.
func linkLayer() Rule {
	return Rule{Class: LinkLayer, Label: "link errors, half duplex or pause frames slow a port down",
		Means: "a port runs at half duplex, or counts errors on at least one frame in 10,000, or at least " +
			"100 pause frames per second",
		Judge: func(o *Observation) Judgement {
			best := missing("no port on the path has counters")
			for _, node := range o.nodes() {
				for _, port := range o.ports(node) {
					best = likelier(best, o.linkOf(node, port))
				}
			}
			return best
		},
		Remedies: []Remedy{
			{Do: "swap the cable and the port; enable autonegotiation at both ends",
				Risk: "the link goes down for a few seconds"},
			{System: "linux", Do: "autonegotiate speed and duplex",
				Commands: []string{"ethtool -s DEV autoneg on"},
				Risk:     "the link goes down for a few seconds"},
			{System: "linux", Do: "check which side sends pause frames",
				Commands: []string{"ethtool -S DEV | grep -i pause", "ethtool -a DEV"}},
			{System: "openwrt", Do: "check what the ports negotiated",
				Commands: []string{"ubus call network.device status"}},
			{System: "routeros", Do: "check what the ports negotiated", Commands: []string{
				"/interface ethernet monitor [find] once"}},
			{System: "freebsd", Do: "autonegotiate speed and duplex",
				Commands: []string{"ifconfig DEV media autoselect"}},
		}}
}

func (o *Observation) linkOf(node, port string) Judgement {
	sum := func(probe string, stems ...string) float64 {
		all := 0.0
		for _, stem := range stems {
			v, _ := o.Sum(node, probe, stem, only(port))
			all += v
		}
		return all
	}
	frames := sum("netdev", "rx_packets", "tx_packets")
	errors := sum("netdev", "rx_errors", "rx_frame_errors", "tx_errors", "tx_collisions", "tx_carrier_errors")
	pauses := o.perSecond(sum("ethtool", "rx_pause_frames_total", "tx_pause_frames_total"))
	share := ratio(errors, frames+errors)
	slows := degree(share, 1e-6, 1e-4)
	j := Judgement{Node: node, Element: port,
		Text: fmt.Sprintf("port %s of %s has errors on %s of its frames", port, node, unit.Percent(share)),
		Facts: factList{fact("rx_errors", node, port, errors,
			fmt.Sprintf("%s: %.0f errors in %.0f frames", port, errors, frames))}}
	if paused := degree(pauses, 10, 100); paused > slows {
		slows, j.Text = paused, fmt.Sprintf("port %s of %s is throttled by %.0f pause frames per second",
			port, node, pauses)
		j.Facts = factList{fact("rx_pause_frames_total", node, port, pauses, j.Text)}
	}
	if o.Run.Facts(node)["device:"+port+":duplex"] == "half" {
		slows, j.Text = 1, fmt.Sprintf("port %s of %s runs at half duplex", port, node)
		j.Facts = append(factList{fact("duplex", node, port, 0, j.Text)}, j.Facts...)
	}
	j.Terms = []Term{requires("slow-link", slows).by(j.Facts[0])}
	return j
}
