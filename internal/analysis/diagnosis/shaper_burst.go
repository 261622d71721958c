package diagnosis

// shaperBurst describes a shaper that sends less than its configured rate although packets wait and cores are
// idle. Its burst is used up before its timer fires again (see burst in tc-tbf(8)).
var shaperBurst = rule("shaper-burst", `
	label: a shaper sends less than its configured rate
	means: a queue with a configured rate always has packets waiting, but sends at most 80 % of that \
		rate, and no core is saturated
	linux: raise the shaper's burst to the bytes that its rate carries in a few milliseconds
		$ tc -s -d qdisc show dev DEV
		$ tc -s -d class show dev DEV
		risk: more packets leave back to back
`, func(o *Observation) Candidate {
	return o.belowRate(requires("idle-cores", o.fullest(), .95, .8), "its burst is too small")
})

// belowRate checks one of the queues that always hold packets: the one that sends the smallest share of its
// configured rate.
func (o *Observation) belowRate(cores Term, because string) Candidate {
	all, why := o.queues(o.hops())
	needs(len(all) > 0, why)
	used := func(q queue) float64 { return ratio(q.rateBps, q.setBps) }
	var q queue
	for _, one := range all {
		bursts := among(one.kind, "tbf htb hfsc")
		if bursts && one.setBps > 0 && one.waited > .5 && (q.setBps == 0 || used(one) < used(q)) {
			q = one
		}
	}

	needs(q.setBps > 0, "no queue that is set to a rate has packets waiting in it")
	return o.holding(q, requires("below-rate", used(q), .88, .75).by(q.setFact()),
		requires("packets-wait", q.waited, .6, .9),
		cores).
		gain(ratio(q.setBps, q.rateBps)).
		text("the shaper at %s passes %b of the %b that it is set to: %s", q, q.rateBps, q.setBps, because)
}
