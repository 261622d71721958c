package diagnosis

import (
	"cmp"
	"slices"
	"strings"
)

// reversePath describes a queue that throttles acknowledgements, so that TCP sends no faster than they
// return.
var reversePath = rule("reverse-path", `
	label: the reverse path, which carries the acknowledgements, is saturated
	means: a queue on the reverse path throttles at least one packet in four, and either has packets \
		waiting for most of the window or sends at its configured rate, while no queue on the \
		forward path does; or half of the acknowledgements are dropped; or the RTT that the load \
		adds comes from a queue on the reverse path
	traits: to-tester
	explains: at-capacity
	linux: raise the rate of the queue, or let CAKE thin out acknowledgements
		$ tc qdisc change dev DEV root cake ack-filter
		risk: above the link rate, delay grows
	openwrt: raise the SQM rate of that direction
		$ uci set sqm.@queue[0].upload=KBITS
		$ uci commit sqm
		$ service sqm restart
		risk: above the link rate, delay grows
	any: use a line with a higher rate in the reverse direction: TCP's acknowledgements need about 2 \
		% of the goodput
`, func(o *Observation) Candidate {
	died := o.acksDie()
	if !o.IsTCP() || o.bothWays() {
		return likelier(died, missing("the load has no way back of its own"))
	}

	all, _ := o.queues(reversed(o.hops()))
	if len(all) == 0 {
		return likelier(died, missing("no port on the way back has a queue with counters"))
	}

	q := slices.MaxFunc(all, func(a, b queue) int { return cmp.Compare(a.holds(), b.holds()) })

	data, _ := o.held()
	free := contradicts("data-held", data.holds(), .03, .25)
	throttles := o.throttles(q)
	throttles.Name = "acks-impaired"
	held := q.candidate(throttles,
		requires("acks-wait", q.waited, .5, .9), free).
		facts(o.heldFacts(q)[1],
			q.fact("qlen_packets", q.waited, "acknowledgements waited there in %h of the samples")).
		text("the acknowledgements are held to %b by the queue at %s", q.rateBps, q)
	a, ofData, known := o.Ledger().waits()
	if known && !ofData {
		at := place{a.Node, a.Element}
		held = likelier(held, at.candidate(requires("acks-impaired", a.WaitedNs, 5e6, 15e6).by(
			at.fact("acks_waited_ns", a.WaitedNs, "acknowledgements wait for %n at the %s's %s port",
				a.WaitedNs, a.Node, a.Element)), free))
	}

	return likelier(held, died)
})

// acksDie checks whether the return path loses so many acknowledgements that TCP learns late, or never, that
// data arrived.
func (o *Observation) acksDie() Candidate {
	l := o.Ledger()
	if l == nil || len(l.Acks) == 0 || l.Acks[0].Out == nil {
		return missing("acknowledgements were not counted")
	}

	if o.Traffic.ShortFlows != nil {
		return missing("the packets on the way back open connections, too")
	}

	sent := *l.Acks[0].Out
	worst := greatest(l.Acks, Account.DiedPackets)
	died := worst.DiedPackets()
	share := ratio(died, sent)
	got := l.Acks[len(l.Acks)-1].In
	if got != nil { // acknowledgements that arrived were not lost
		share = min(share, 1-ratio(*got, sent))
	}

	if share < .3 || sent < 10 || strings.Contains(worst.Died[0].By, "cake") {
		return missing("acknowledgements arrive") // CAKE drops acknowledgements on purpose (ack-filter)
	}

	at := place{worst.Node, worst.Element}
	return at.candidate(requires("acks-impaired", share, .3, .5).by(
		at.fact("acks_died", died, "%.0f of %.0f packets on the way back died there, by %s", died, sent,
			worst.Died[0].By))).
		text("%h of the acknowledgements die at the %s's %s", min(share, 1), worst.Node, worst.Element)
}
