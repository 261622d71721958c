package diagnosis

import (
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// discardWords lists parts of the names of driver counters for packets lost because no buffer or no access to
// memory was available.
const discardWords = "rx_missed rx_no_buffer rx_discards out_of_buffer rx_no_dma rx_fifo_errors " +
	"rx_over_errors"

// pcieMemory describes a NIC that discards received packets, although no core is saturated, because it waits
// for the bus or for memory.
var pcieMemory = rule(PCIeMemory, `
	label: the PCIe bus or memory slows a NIC down
	means: a NIC discards at least one received packet in 1,000 while no core is busy for more \
		than 80 %; a PCIe link below what both ends support makes it more likely
	linux: check the NIC's PCIe link: if it is not at full width and speed, use another slot
		$ lspci -vv | grep -E 'LnkCap|LnkSta'
		risk: none
	linux: keep the NIC's queues on the NUMA node that it is attached to
		$ cat /sys/class/net/DEV/device/numa_node
		risk: none
`, func(o *Observation) Candidate {
	s := need(systemOf(o))
	nics := slices.DeleteFunc(o.ports(o.Routers()...), func(at place) bool {
		driver := o.Run.Facts(at.Node)["device:"+at.Element+":driver"]
		return driver == "" || record.VirtualDriver(driver)
	})
	return likeliest("no port belongs to a physical NIC", nics, func(at place) Candidate {
		return o.discardsOf(s, at)
	})
}, func(*Observation) Experiment {
	return scaled(factor.PacketSize, 1400, 1, "at the same packet rate, smaller packets put fewer bytes on "+
		"the bus: discards stop if bytes are the limit", 1, .5, .25)
})

func (o *Observation) discardsOf(s system, at place) Candidate {
	discards := o.total(at, "ethtool", discardWords) + o.total(at, "netdev", discardWords)
	all := o.total(at, "netdev", "rx_packets") + discards
	share := ratio(discards, all)
	now, best, known := strings.Cut(o.Run.Facts(at.Node)["device:"+at.Element+":pcie"], " of ")
	slow := known && now != best
	j := at.candidate(requires("discards", share, .0001, .001).by(
		at.fact("rx_missed", discards, "%s discarded %.0f of %.0f packets", at.Element, discards, all)),
		requires("slack-cores", s.Full.Busy, .95, .8).by(s.coreFact()),
		supports("slow-pcie", yes(slow))).
		text("NIC %s of %s discards %h of what it receives while no core is saturated: the PCIe bus or "+
			"memory is the limit", at.Element, at.Node, share)
	if slow {
		return j.facts(at.fact("pcie", 0, "its PCIe link runs at %s, both ends support %s", now, best))
	}

	return j
}
