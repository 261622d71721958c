package diagnosis

import "fmt"

// shaper returns the rule for a queue that holds packets to a rate.
func shaper() Rule {
	return Rule{Class: Shaper, Label: "a shaper limits the rate", Ends: true,
		Means: "a queue with classes, or one with AQM, throttles at least one packet in four while its " +
			"output is even; it carries the rate that it is set to or, where that is not known, packets " +
			"wait in it",
		Judge: func(o *Observation) Judgement {
			q, held, why := o.held()
			if why != "" {
				return missing(why)
			}
			return Judgement{Node: q.node, Element: q.port, GainAtMost: o.gainToTester(),
				Terms: append([]Term{requires("shaper", yes(q.managed || q.owned))}, held...),
				Text:  fmt.Sprintf("a shaper at %s on %s", mbps(q.rateBps), q.place()),
				Facts: o.heldFacts(q)}
		},
		Remedies: []Remedy{
			{System: "linux", Do: "raise the shaper's rate if the link behind it can carry more",
				Commands: []string{"tc -s qdisc show", "tc -s class show dev DEV"},
				Risk:     "above the link rate the link's own queue fills, and delay grows"},
			{System: "openwrt", Do: "raise the SQM rate", Commands: []string{
				"uci set sqm.@queue[0].upload=KBITS", "uci commit sqm", "service sqm restart"},
				Risk: "above the link rate, delay grows"},
			{System: "routeros", Do: "raise the queue's max-limit",
				Commands: []string{"/queue simple print stats"},
				Risk:     "above the link rate, delay grows"},
			{System: "freebsd", Do: "raise the pipe's bandwidth", Commands: []string{"dnctl pipe show"},
				Risk: "above the link rate, delay grows"},
		}}
}
