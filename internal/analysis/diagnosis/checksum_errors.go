package diagnosis

import "fmt"

// checksumErrors returns the rule for packets that arrive damaged and that the receiver drops.
func checksumErrors() Rule {
	return Rule{Class: ChecksumErrors, Wasteful: true, Label: "packets arrive with wrong checksums",
		Means: "the receiver drops at least 0.1 % of the load's packets because their checksums are wrong, " +
			"and these are at least half of what the ends miss",
		Judge: func(o *Observation) Judgement {
			_, receiver := o.Ends()
			wrong, ok := o.grew(receiver, "TcpInCsumErrors", "UdpInCsumErrors", "Udp6InCsumErrors",
				"IpExtInCsumErrors")
			if !ok {
				return missing("the receiver's protocol counters were not read")
			}
			return o.lostTo(wrong, receiver, "TcpInCsumErrors", "arrived with wrong checksums")
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

// lostTo judges a cause of loss that a counter of the node counts, by its share of what the ends miss.
func (o *Observation) lostTo(n float64, node, counter, words string) Judgement {
	missed, why := o.missed()
	if why != "" {
		return missing(why)
	}
	loss, name, _ := o.lossOf()
	share := ratio(n, max(missed, n))
	text := fmt.Sprintf("%.0f of the %.0f packets that the ends miss %s at the %s", n, max(missed, n), words,
		node)
	e := fact(counter, node, "ip", n, text)
	return Judgement{Node: node, Facts: factList{e, lossFact(name, loss)}, Text: text,
		GainAtMost: o.gainToTester(), Terms: []Term{requires("counted", degree(n, 2, 8)).by(e),
			requires("most-of-missed", degree(share, .2, .6)).by(e),
			requires("lossy", degree(loss, .0005, .003)).by(lossFact(name, loss))}}
}
