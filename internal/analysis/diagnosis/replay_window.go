package diagnosis

import "strings"

// lateCounters lists counters of packets that IPsec drops because later ones arrived before them. With
// extended sequence numbers, the receiver mistakes a packet older than the window for one of the next 2^32
// packets, so that the integrity check fails (xfrm_replay_seqhi in net/xfrm/xfrm_replay.c, after RFC 4303,
// appendix A2.2).
const lateCounters = "XfrmInStateSeqError XfrmInStateProtoError"

const byReplay = "IPsec's replay window"

// replayWindow describes packets that a tunnel drops because later ones arrived before them.
var replayWindow = rule(ReplayWindow, `
	label: the tunnel drops late packets as replayed
	means: IPsec drops at least 0.1 % of the load's packets, and at least half of the missing \
		packets, because their sequence numbers are outside the replay window (XfrmInStateSeqError, \
		or XfrmInStateProtoError with extended sequence numbers)
	traits: wasteful to-tester
	explains: at-capacity
	linux: use a larger replay window
		$ ip xfrm state
		$ swanctl.conf: children.NAME.replay_window = 1024
		risk: none known; both directions of both ends have one
	any: find what reorders packets before they are decrypted: several cores, queues or links
`, func(o *Observation) Candidate {
	late := 0.0
	known := false
	var node, counter string
	for _, at := range o.wayNodes() {
		for name := range strings.FieldsSeq(lateCounters) {
			n, why := o.sum(place{Node: at}, "xfrm", name)
			known = known || why == ""
			if n > late {
				late, node, counter = n, at, name
			}
		}
	}

	needs(known, "no node on the path counts what IPsec drops")
	if late == 0 { // the node may not use IPsec
		return excluded()
	}

	return o.lostTo(late, node, counter, "died outside of IPsec's replay window")
})
