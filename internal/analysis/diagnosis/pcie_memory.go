package diagnosis

import (
	"fmt"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// discardWords lists parts of the names that drivers give to packets lost for lack of a buffer or of access
// to memory.
var discardWords = []string{"rx_missed", "rx_no_buffer", "rx_discards", "out_of_buffer", "rx_no_dma",
	"rx_fifo_errors", "rx_over_errors"}

// pcieMemory returns the rule for a card that discards received packets while no core is full: it waits for
// the bus or for memory.
func pcieMemory() Rule {
	return Rule{Class: PCIeMemory, Label: "the PCIe bus or memory slows a NIC down",
		Means: "a NIC discards at least one received packet in 1,000 while no core is busy for more than " +
			"80 %; a PCIe link below what both ends support makes it more likely",
		Judge: given((*Observation).systemOf, func(o *Observation, s system) Judgement {
			best := missing("no port belongs to a physical NIC")
			for _, node := range o.Routers() {
				for _, port := range o.ports(node) {
					driver := o.Run.Facts(node)["device:"+port+":driver"]
					if driver == "" || record.VirtualDriver(driver) {
						continue
					}
					best = likelier(best, o.discardsOf(s, node, port))
				}
			}
			return best
		}),
		Experiments: always(Experiment{Factor: "packet_size", Doses: []string{"1400", "700", "350"},
			Resource: []float64{1, .5, .25}, From: FromTester, Expect: 1, Why: "at the same packet rate, " +
				"smaller packets put fewer bytes on the bus: discards stop if bytes are the limit"}),
		Remedies: []Remedy{
			{System: "linux", Do: "check the NIC's PCIe link: if it is not at full width and speed, use " +
				"another slot",
				Commands: []string{"lspci -vv | grep -E 'LnkCap|LnkSta'"}, Risk: "none"},
			{System: "linux", Do: "keep the NIC's queues on the NUMA node that it is attached to",
				Commands: []string{"cat /sys/class/net/DEV/device/numa_node"}, Risk: "none"},
		}}
}

func (o *Observation) discardsOf(s system, node, port string) Judgement {
	discards := 0.0
	for _, word := range discardWords {
		for _, probe := range []string{"ethtool", "netdev"} {
			v, _ := o.Sum(node, probe, word, only(port))
			discards += v
		}
	}
	received, _ := o.Sum(node, "netdev", "rx_packets", only(port))
	share := ratio(discards, received+discards)
	facts := factList{fact("rx_missed", node, port, discards, fmt.Sprintf("%s discarded %.0f "+
		"of %.0f packets", port, discards, received+discards)), s.coreFact()}
	now, most, known := strings.Cut(o.Run.Facts(node)["device:"+port+":pcie"], " of ")
	slow := known && now != most
	if slow {
		facts = append(facts, fact("pcie", node, port, 0,
			"its PCIe link runs at "+now+", both ends support "+most))
	}
	return Judgement{Node: node, Element: port, Facts: facts,
		Terms: []Term{requires("discards", degree(share, .0001, .001)).by(facts[0]),
			requires("slack-cores", degree(s.Full.Busy, .95, .8)), supports("slow-pcie", yes(slow))},
		Text: fmt.Sprintf("NIC %s of %s discards %s of what it receives while no core is saturated: "+
			"the PCIe bus or memory is the limit", port, node, unit.Percent(share))}
}
