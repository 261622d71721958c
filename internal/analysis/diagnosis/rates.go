package diagnosis

import (
	"cmp"
	"slices"
)

// held returns the queue that throttles the load most. why is the reason if there is no queue.
func (o *Observation) held() (q queue, why string) {
	all, why := o.queues(o.hops())
	if len(all) == 0 {
		return q, why
	}
	return slices.MaxFunc(all, func(a, b queue) int {
		return cmp.Or(cmp.Compare(a.holds(), b.holds()), cmp.Compare(a.overlimits, b.overlimits))
	}), ""
}

// holding returns a candidate at a queue, with terms and with the facts about its throttling.
func (o *Observation) holding(q queue, terms ...Term) Candidate {
	return q.candidate(terms...).facts(o.heldFacts(q)...)
}

// heldFacts returns the facts about a queue that throttles.
func (o *Observation) heldFacts(q queue) (out factList) {
	idle := q.idle() > .5
	set := q.setBps > 0
	switch {
	case idle && set:
		out = factList{q.setFact()}
	case idle:
		out = factList{q.fact("qlen_packets", q.waited,
			"the queue at %s held packets in %h of the samples, and dropped none", q, q.waited)}
	}

	out = append(out, q.fact("overlimits", q.overlimits,
		"the queue at %s throttled its output %.2g times per packet", q, q.overlimits),
		q.fact("tx_bytes", q.rateBps, "the port sent %b"))
	if set && !idle {
		out = append(out, q.setFact())
	}

	if d, ok := o.addedDelay(); ok {
		out = append(out, d.fact("queueing added %n to the probe RTT, %n to the TCP RTT", d.probes,
			d.tcp))
	}

	return append(out, q.fact("drops", q.drops, "the queue dropped %h of its packets", q.lost()))
}

// setFact compares a port's rate with the configured rate of its queue.
func (q queue) setFact() Fact {
	return against(q.fact("tx_bytes", q.rateBps, "the queue is set to %b, and the port sent %h of that",
		q.setBps, q.rateBps/q.setBps), q.setBps)
}

// gainToTester returns an upper bound of the gain: the tester's rate without the router ÷ the rate now; 0 =
// unknown.
func (o *Observation) gainToTester() float64 {
	gain := ratio(o.Tester.Value, o.value(o.Tester.Metric))
	if gain <= 1 {
		return 0
	}
	return gain
}
