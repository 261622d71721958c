package diagnosis

// softirqOneCore describes a router that processes all packets on one core while another is idle.
var softirqOneCore = rule(SoftirqOneCore, `
	label: one core of the router is saturated by softirq
	means: a core of the router is busy for at least 93 % of the window, mostly in interrupts \
		and softirqs, while another idles for at least 40 %
	traits: at-capacity in-router in-guest busy-cores
	kind: packet
	planted: cpu_quota
`+spreading, func(o *Observation) Candidate {
	s := ownSystem(o)
	if len(s.Cores) == 1 {
		return excluded(fact("cpu_cores", s.Node, "", 1, "the %s has one core", s.Node))
	}

	idles := 1 - s.Slack.Busy
	return s.at(s.Full.Name).candidate(s.full(),
		softirqWork(s.Full.Softirq+s.Full.IRQ, s.Full.Unclassified, s.Full.Busy).by(s.softirqFact()),
		requires("slack-core", idles, .1, .4).by(fact("cpu_idle_ratio", s.Node, s.Slack.Name, idles,
			"%s idled for %h", s.Slack, idles)),
		contradicts("tunnel", yes(o.tunnel() != ""))). // see oneTunnelOneCore
		gain(s.spreadGain()).
		text("the %s's %s is saturated by softirq while %s idles for %h: one receive queue", s.Node,
			s.Full, s.Slack, idles)
})
