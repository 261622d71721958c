package diagnosis

import "github.com/chokepoint-lab/chokepoint/internal/factor"

// oneTunnelOneCore describes a tunnel whose packets are processed on one core while others are idle.
var oneTunnelOneCore = rule(OneTunnel, `
	label: a single tunnel saturates one core
	means: the load uses a single in-kernel tunnel, one core is busy for at least 93 % of the \
		window, and another idles for at least 40 %
	traits: at-capacity in-router
	kind: packet
	any: spread the traffic over several tunnels
		risk: each flow still uses one tunnel
		plan: tunnels=2
`+spreading, func(o *Observation) Candidate {
	tunnel := o.tunnel()
	if tunnel == "" || factor.InUserspace(tunnel) || o.load().Tunnels > 1 {
		return excluded()
	}

	s := ownSystem(o)
	if len(s.Cores) == 1 {
		return excluded()
	}

	return s.at(s.Full.Name).candidate(s.full(), requires("slack-core", 1-s.Slack.Busy, .15,
		.4).by(s.coreFact())).
		facts(s.softirqFact(), fact("tunnels", s.Node, tunnel, 1, "all streams share one tunnel")).
		gain(s.spreadGain()).
		text("a single tunnel saturates %s of the %s while %s idles for %h", s.Full, s.Node, s.Slack,
			1-s.Slack.Busy)
}, func(*Observation) Experiment {
	return scaled("tunnels", 1, 1, "parallel tunnels run on more cores", 2, 4)
})
