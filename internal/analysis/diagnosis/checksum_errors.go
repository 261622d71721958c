package diagnosis

import (
	"fmt"

	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// checksumErrors returns the rule for packets that arrive damaged and that the receiver drops.
func checksumErrors() Rule {
	return Rule{Class: ChecksumErrors, Wasteful: true, Label: "packets arrive with wrong checksums",
		Means: "the receiver drops at least 0.1 % of the load's packets because their checksums are wrong, " +
			"and these are at least half of what the ends miss",
		Judge: func(o *Observation) Judgement {
			_, receiver := o.Ends()
			wrong, ok := o.grew(receiver, "TcpInCsumErrors", "UdpInCsumErrors", "Udp6InCsumErrors",
				"IpExtInCsumErrors")
			missed, why := o.missed()
			switch {
			case !ok:
				return missing("the receiver's protocol counters were not read")
			case why != "":
				return missing(why)
			}
			loss, name, _ := o.lossOf()
			share := ratio(wrong, max(missed, wrong))
			e := fact("TcpInCsumErrors", receiver, "ip", wrong, fmt.Sprintf("the %s dropped %.0f packets "+
				"for their checksums, %s of what the ends miss", receiver, wrong, unit.Percent(share)))
			return Judgement{Node: receiver, Facts: factList{e, lossFact(name, loss)},
				GainAtMost: o.gainToTester(), Terms: []Term{requires("checksums", degree(wrong, 2, 8)).by(e),
					requires("most-of-missed", degree(share, .2, .6)).by(e),
					requires("lossy", degree(loss, .0005, .003)).by(lossFact(name, loss))},
				Text: fmt.Sprintf("%.0f of the %.0f packets that the ends miss arrived at the %s with wrong "+
					"checksums", wrong, max(missed, wrong), receiver)}
		},
		Remedies: []Remedy{
			{System: "linux", Do: "switch checksum offload and what builds on it off at one port after the " +
				"other: the port at which the errors end has it broken",
				Commands: []string{"ethtool -K DEV rx off tx off gro off lro off tso off"},
				Risk:     "checksums then cost CPU time"},
			{System: "linux", Do: "check the link: cable, optics, memory", Commands: []string{
				"ethtool -S DEV | grep -iE 'err|drop|crc'"}},
		}}
}
