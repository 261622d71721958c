package diagnosis

import (
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// optionsStripped returns the rule for a connection without the window scale option, so that no window
// exceeds 64 kB (RFC 7323, section 2.3).
func optionsStripped() Rule {
	return Rule{Class: OptionsStripped, Ends: true,
		Label: "TCP runs without the window scale option",
		Means: "the ends did not agree on window scaling, and the receive window limits TCP for at least " +
			"40 % of the time",
		Judge: given((*Observation).tcpShares, func(o *Observation, s tcpShares) Judgement {
			unscaled, why := o.unscaled()
			if why != "" {
				return missing(why)
			}
			if !unscaled {
				return Judgement{Score: absent}
			}
			bytes, rtt := o.inFlight()
			sender, receiver := o.Ends()
			facts := factList{rwndFact(s), flightFact(receiver, bytes, rtt)}
			j := Judgement{Element: "path", GainAtMost: o.gainToTester(), Facts: facts,
				Terms: []Term{requires("small-window", degree(s.rwnd, .1, .4)).by(facts[0])},
				Text:  "something on the path removes TCP's window scale option"}
			for _, end := range []string{receiver, sender} {
				if o.Run.Facts(end)["sysctl:net.ipv4.tcp_window_scaling"] == "0" {
					j.Node, j.Element = end, "socket"
					j.Text = "window scaling is switched off at the " + end
				}
			}
			j.Text += ": at most 64 kB are in flight per RTT of " + unit.Nanoseconds(rtt)
			return j
		}),
		Experiments: streamDoses(1, "each connection has its own window: twice as many carry twice as "+
			"much"),
		Remedies: []Remedy{{System: "linux", Do: "look for the rule or device that removes TCP options",
			Commands: []string{"nft list ruleset | grep 'tcp option'",
				"sysctl net.ipv4.tcp_window_scaling"}}}}
}

// unscaled reports whether a connection of the load was set up without window scaling.
func (o *Observation) unscaled() (yes bool, why string) {
	why = "which options TCP agreed on is not known"
	for _, f := range o.Trial.Traffic.Flows {
		if f.TCP != nil && f.TCP.Options != nil {
			yes, why = yes || !slices.Contains(f.TCP.Options, "wscale"), ""
		}
	}
	return yes, why
}
