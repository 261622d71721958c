package diagnosis

import "slices"

// optionsStripped describes a connection without the window scale option, whose windows cannot exceed 64 kB
// (RFC 7323, section 2.3).
var optionsStripped = rule("options-stripped", `
	label: TCP runs without the window scale option
	means: the ends did not agree on window scaling, and the receive window limits TCP for at \
		least 40 % of the time
	traits: ends to-tester
	linux: look for the rule or device that removes TCP options
		$ nft list ruleset | grep 'tcp option'
		$ sysctl net.ipv4.tcp_window_scaling
`, func(o *Observation) Candidate {
	s := need(tcpTimes(o))
	known, unscaled := false, false
	for _, f := range o.tcpFlows() {
		if f.TCP.Options != nil {
			known = true
			unscaled = unscaled || !slices.Contains(f.TCP.Options, "wscale")
		}
	}

	needs(known, "which options TCP agreed on is not known")
	if !unscaled {
		return excluded()
	}

	bytes, rtt := o.inFlight()
	sender, receiver := o.Ends()
	at, what := wholePath, "something on the path removes TCP's window scale option"
	for _, end := range []string{receiver, sender} {
		if o.Run.Facts(end)["sysctl:net.ipv4.tcp_window_scaling"] == "0" {
			at = place{end, "socket"}
			what = "window scaling is switched off at the " + end
		}
	}

	return at.candidate(requires("small-window", s.rwnd, .1, .4).by(rwndFact(s))).
		facts(flightFact(receiver, bytes, rtt)).
		text("%s: at most 64 kB are in flight in TCP's RTT of %n", what, rtt)
}, streamSteps(1, "each connection has its own window: twice as many carry twice as much"))
