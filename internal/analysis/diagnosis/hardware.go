package diagnosis

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// environment is a fact of what the node is; "" = not known.
func (o *Observation) environment(node, name string) string {
	for _, e := range o.Run.Environments {
		if e.Node == node {
			return e.Facts[name]
		}
	}
	return ""
}

// ports are a node's devices that are links of the topology and that probe netdev counts.
func (o *Observation) ports(node string) []string {
	columns, _ := o.Columns(node, "netdev", "rx_packets")
	var out []string
	for _, c := range columns {
		if c.Label != "lo" && o.isPort(node, c.Label) {
			out = append(out, c.Label)
		}
	}
	return out
}

// linkLayer is a link that is slower than it could be, or damages frames, or asks for pauses.
func linkLayer() Rule {
	return Rule{Class: LinkLayer, Label: "the link layer",
		Means: "a port runs at half duplex, counts errors for one frame in ten thousand or more, or a " +
			"hundred pause frames a second",
		Judge: func(o *Observation) Judgement {
			best := missing("no port of the path is counted")
			for _, node := range o.nodes() {
				for _, port := range o.ports(node) {
					j := o.linkOf(node, port)
					if best.NotExamined != "" || j.Score > best.Score {
						best = j
					}
				}
			}
			return best
		},
		Experiments: func(_ *Observation, j Judgement) []Experiment {
			return []Experiment{{Class: j.Class, Factor: "rate", Doses: []string{"10M", "50M", "200M"},
				From: "tester", Why: "frames that a link damages are lost at any rate; those that a " +
					"queue drops are not"}}
		},
		Remedies: []Remedy{
			{Do: "change the cable and the port; let both ends negotiate",
				Risk: "the link goes down for seconds"},
			{System: "linux", Do: "negotiate speed and duplex",
				Commands: []string{"ethtool -s DEV autoneg on"},
				Risk:     "the link goes down for seconds"},
			{System: "linux", Do: "see which side sends pause frames",
				Commands: []string{"ethtool -S DEV | grep -i pause", "ethtool -a DEV"}},
			{System: "openwrt", Do: "see what the ports negotiated",
				Commands: []string{"ubus call network.device status"}},
			{System: "routeros", Do: "see what the ports negotiated", Commands: []string{
				"/interface ethernet monitor [find] once"}},
			{System: "freebsd", Do: "negotiate speed and duplex",
				Commands: []string{"ifconfig DEV media autoselect"}},
		}}
}

func (o *Observation) linkOf(node, port string) Judgement {
	only := func(label string) bool { return label == port }
	sum := func(probe string, stems ...string) float64 {
		all := 0.0
		for _, stem := range stems {
			v, _ := o.Sum(node, probe, stem, only)
			all += v
		}
		return all
	}
	frames := sum("netdev", "rx_packets", "tx_packets")
	errors := sum("netdev", "rx_errors", "rx_frame_errors", "tx_errors", "tx_collisions", "tx_carrier_errors")
	pauses := o.perSecond(sum("ethtool", "rx_pause_frames_total", "tx_pause_frames_total"))
	share := ratio(errors, frames+errors)
	j := Judgement{Score: ramp(share, 1e-6, 1e-4, -5, 3.5), Node: node, Element: port,
		Text: fmt.Sprintf("port %s of %s counts errors: %s of its frames", port, node, unit.Percent(share)),
		Facts: []evidence.Evidence{fact("rx_errors", node, port, errors,
			fmt.Sprintf("%s: %.0f errors in %.0f frames", port, errors, frames))}}
	if s := ramp(pauses, 10, 100, -5, 3); s > j.Score {
		j.Score, j.Text = s, fmt.Sprintf("port %s of %s is held back by %.0f pause frames a second", port,
			node, pauses)
		j.Facts = []evidence.Evidence{fact("rx_pause_frames_total", node, port, pauses, j.Text)}
	}
	if o.environment(node, "device:"+port+":duplex") == "half" {
		j.Score, j.Text = max(j.Score, 3.5), fmt.Sprintf("port %s of %s runs at half duplex", port, node)
		j.Facts = append([]evidence.Evidence{fact("duplex", node, port, 0, j.Text)}, j.Facts...)
	}
	j.Score += o.wants()
	return j
}

// discardWords are parts of the names that drivers give to packets lost for want of a buffer, or of the way
// to memory.
var discardWords = []string{"rx_missed", "rx_no_buffer", "rx_discards", "out_of_buffer", "rx_no_dma",
	"rx_fifo_errors", "rx_over_errors"}

// pcieMemory is a card that discards what it received while no core is full: what it waits for is the bus or
// memory.
func pcieMemory() Rule {
	return Rule{Class: PCIeMemory, Label: "the bus or memory behind a network card",
		Means: "a network card discards one received packet in a thousand or more while no core is busy " +
			"for more than 80 %; its PCIe link below what both ends have supports it",
		Judge: func(o *Observation) Judgement {
			s, why := o.systemOf()
			if why != "" {
				return missing(why)
			}
			best := missing("no port is one of a physical network card")
			for _, node := range o.Routers() {
				for _, port := range o.ports(node) {
					driver := o.environment(node, "device:"+port+":driver")
					if driver == "" || record.VirtualDriver(driver) {
						continue
					}
					if j := o.discardsOf(s, node, port); best.NotExamined != "" || j.Score > best.Score {
						best = j
					}
				}
			}
			return best
		},
		Experiments: func(_ *Observation, j Judgement) []Experiment {
			return []Experiment{{Class: j.Class, Factor: "packet_size", Doses: []string{"1400", "700", "350"},
				Resource: []float64{1, .5, .25}, From: "tester", Expect: 1, Why: "at the same packet rate, " +
					"smaller packets put fewer bytes on the bus: discards end where bytes are the limit"}}
		},
		Remedies: []Remedy{
			{System: "linux", Do: "check the card's PCIe link: if it is not at full width and speed, use " +
				"another slot",
				Commands: []string{"lspci -vv | grep -E 'LnkCap|LnkSta'"}, Risk: "none"},
			{System: "linux", Do: "keep the card's queues on the memory node that it is attached to",
				Commands: []string{"cat /sys/class/net/DEV/device/numa_node"}, Risk: "none"},
		}}
}

func (o *Observation) discardsOf(s system, node, port string) Judgement {
	discards := 0.0
	for _, word := range discardWords {
		for _, probe := range []string{"ethtool", "netdev"} {
			v, _ := o.Sum(node, probe, word, func(label string) bool { return label == port })
			discards += v
		}
	}
	received, _ := o.Sum(node, "netdev", "rx_packets", func(label string) bool { return label == port })
	share := ratio(discards, received+discards)
	score := ramp(share, .0001, .001, -4, 2) + ramp(s.Full.Busy, .8, .95, 1, -5) + o.wants()
	facts := []evidence.Evidence{fact("rx_missed", node, port, discards, fmt.Sprintf("%s discarded %.0f "+
		"of %.0f packets", port, discards, received+discards)), s.coreFact()}
	now, most, known := strings.Cut(o.environment(node, "device:"+port+":pcie"), " of ")
	if known && now != most {
		score++
		facts = append(facts, fact("pcie", node, port, 0,
			"its PCIe link runs at "+now+", both ends support "+most))
	}
	return Judgement{Score: score, Node: node, Element: port, Facts: facts,
		Text: fmt.Sprintf("network card %s of %s discards %s of what it receives while no core is full: "+
			"the bus or memory", port, node, unit.Percent(share))}
}

// groPathology is GRO by lists of fragments that makes a rate small while nothing is full.
func groPathology() Rule {
	return Rule{Class: GROPathology, Label: "GRO by fragment lists",
		Means: "a port merges received packets into lists (rx-gro-list), TCP sends one segment in a " +
			"hundred or more again, and no core is busy for more than 60 %",
		Judge: func(o *Observation) Judgement {
			s, why := o.systemOf()
			if why != "" || !o.IsTCP() {
				return missing(cmp.Or(why, "the load is not of TCP"))
			}
			for _, node := range o.Routers() {
				for _, port := range o.ports(node) {
					offloads := o.environment(node, "device:"+port+":offloads")
					if !strings.Contains(" "+offloads+" ", " rx-gro-list ") {
						continue
					}
					again, ok := o.Metric(metrics.Retransmits)
					packets, ok2 := o.forwarded(node)
					if !ok || !ok2 {
						return missing("retransmits or forwarded packets were not counted")
					}
					share := ratio(again, packets)
					return Judgement{Score: ramp(share, .002, .02, -4, 2) + ramp(s.Full.Busy, .6, .9, 1, -5) +
						o.wants(), Node: node, Element: port,
						Text: fmt.Sprintf("port %s of %s merges packets into lists (rx-gro-list), and TCP "+
							"sends %s again while no core is full", port, node, unit.Percent(share)),
						Facts: []evidence.Evidence{fact(metrics.Retransmits, node, port, again, "TCP sent "+
							unit.Percent(share)+" of its packets again"), s.coreFact()}}
				}
			}
			return Judgement{Score: absent, Facts: []evidence.Evidence{fact("offloads", s.Node, "rx-gro-list",
				0, "rx-gro-list is off at every port of the routers")}}
		},
		Experiments: func(_ *Observation, j Judgement) []Experiment {
			return []Experiment{{Class: j.Class, Factor: "mss", Doses: []string{"1300", "1100", "900"},
				From: "tester", Why: "the pathology is of packets that are merged: another size changes how"}}
		},
		Remedies: []Remedy{
			{System: "linux", Do: "switch it off", Commands: []string{"ethtool -K DEV rx-gro-list off"},
				Risk: "more CPU time for each packet"},
			{System: "openwrt", Do: "switch it off", Commands: []string{"ethtool -K DEV rx-gro-list off"},
				Risk: "more CPU time for each packet; lost on reboot"},
		}}
}
