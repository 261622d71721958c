package diagnosis

import "slices"

// policer describes a policer, which drops packets above a rate instead of queueing them.
var policer = rule(Policer, `
	label: a policer drops traffic above its rate
	means: an ingress filter drops at least 0.3 % of the load's packets; or, if the router cannot be \
		observed, 2 % of the segments are retransmitted without added queueing delay
	traits: ends to-tester
	explains: at-capacity
	kind: rate
	planted: policer
	linux: shape instead of policing, or raise the policer's burst
		$ tc -s filter show dev DEV ingress
		risk: a shaper adds delay
	routeros: use a queue instead of a limit rule
		risk: FastTrack bypasses queues
	any: if the provider polices: shape to slightly below the provider's rate
		risk: costs a few per cent of the rate
`, func(o *Observation) Candidate {
	loss, lost, ok := o.lossOf()
	d, timed := o.addedDelay()
	needs(ok && timed, "the load's loss and delay are not known")
	filters := o.filters(o.hops())
	q := greatest(filters, func(q queue) float64 { return q.drops })
	got := o.goodput()
	sampled := func(node string) bool { return len(o.Nodes[node].Samples) > 0 }
	guess := yes(q.drops == 0 && !slices.ContainsFunc(o.Routers(), sampled))
	lossy := degree(loss, .005, .03)
	idle := o.lostWhenIdle()
	idle.Met *= guess
	dropped := requires("drops", max(degree(q.lost(), .0005, .003), guess*lossy))
	j := wholePath.candidate().text("a policer on the path at about %b", got)
	switch {
	case q.drops > 0:
		passed := min(got/(1-min(loss, .9)), got*1.05)
		j = q.candidate().text("a policer on %s drops %h of what arrives and passes %b", q, q.lost(),
			passed)
		dropped = dropped.by(fact("drops", q.Node, q.Element+"@ingress", q.drops,
			"the ingress filter on %s dropped %.0f packets", q, q.drops))
	case len(filters) > 0:
		dropped = dropped.by(seen("drops", 0, "no ingress filter on the path dropped a packet"))
	case lossy < .8: // heavy loss does not contradict a policer
		dropped = dropped.by(lost)
	}

	calm := degree(max(d.probes, d.tcp), 5e6, 1e6)
	return j.with(dropped, requires("no-delay", max(1-guess, calm)), idle).
		facts(lost, d.fact("queueing added %n to the probe RTT", d.probes))
})
