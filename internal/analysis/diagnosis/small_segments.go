package diagnosis

import (
	"fmt"

	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// smallSegments returns the rule for TCP with segments far smaller than Ethernet carries, on full CPUs: the
// cost of a packet does not depend on its size.
func smallSegments() Rule {
	return Rule{Class: SmallSegments, Wasteful: true, Label: "TCP's segments are small",
		Means: "a segment holds less than half of what Ethernet carries, and a core that moves them is full",
		Judge: func(o *Observation) Judgement {
			s := o.senderLedger()
			if s == nil || s.MSS == 0 {
				return missing("the size of segments is not known")
			}
			mss, full := float64(s.MSS), degree(o.fullest(), .6, .9)
			if o.Shared() { // all roles work in turn, and no core is full
				full = degree(o.fullest(), .4, .6)
			}
			lost, _, _ := o.lossOf()
			facts := factList{against(fact("mss_bytes", s.Node, "socket", mss, fmt.Sprintf("the ends agreed "+
				"on segments of %d bytes", s.MSS)), ethernetMSS),
				fact("cpu_busy_ratio", "", "cpu", o.fullest(), "the busiest core on the way was busy for "+
					unit.Percent(o.fullest()))}
			return Judgement{Element: "path", Facts: facts,
				Terms: []Term{requires("small-mss", degree(mss, 1000, 600)).by(facts[0]),
					requires("full-core", full).by(facts[1]), contradicts("lossy", degree(lost, .002, .02))},
				GainAtMost: min(ethernetMSS/mss, max(o.gainToTester(), 1)), Text: fmt.Sprintf("TCP sends "+
					"segments of %d bytes, where Ethernet carries 1448: each costs as much", s.MSS)}
		},
		Remedies: []Remedy{{System: "linux", Do: "look for what clamps the MSS, and for a small MTU on " +
			"the way", Commands: []string{"nft list ruleset | grep maxseg", "ip link | grep mtu",
			"ip route | grep advmss"}}}}
}
