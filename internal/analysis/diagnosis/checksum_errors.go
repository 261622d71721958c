package diagnosis

// checksumErrors describes packets that arrive damaged, so that the receiver drops them.
var checksumErrors = rule("checksum-errors", `
	label: packets arrive with wrong checksums
	means: the receiver drops at least 0.1 % of the load's packets because their checksums are \
		wrong, and these are at least half of what the ends miss
	traits: wasteful to-tester
	linux: switch off checksum offload and the offloads that depend on it, one port at a time; if \
		the errors stop, the offload of that port is broken
		$ ethtool -K DEV rx off tx off gro off lro off tso off
		risk: checksums then cost CPU time
	linux: check the link: cable, optics, memory
		$ ethtool -S DEV | grep -iE 'err|drop|crc'
`, func(o *Observation) Candidate {
	_, receiver := o.Ends()
	wrong, ok := o.grew(receiver, wrongChecksums)
	needs(ok, "the receiver's protocol counters were not read")
	return o.lostTo(wrong, receiver, "TcpInCsumErrors", "arrived with wrong checksums")
})

// lostTo returns a candidate for a cause of loss that has its own counter on a node. It compares the
// counter's growth n with the number of packets missing at the ends.
func (o *Observation) lostTo(n float64, node, counter, words string) Candidate {
	missed := max(need(o.missed()), n)
	loss, lost, _ := o.lossOf()
	e := fact(counter, node, "ip", n, "%.0f of the %.0f packets that the ends miss %s at the %s", n, missed,
		words, node)
	if missed == 0 {
		e.Text = "no packet was lost or retransmitted"
	}

	return place{Node: node}.candidate(requires("most-of-missed", ratio(n, missed), .2, .6).by(e),
		requires("lossy", loss, .0005, .003).by(lost))
}
