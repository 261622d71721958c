package diagnosis

import (
	"fmt"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// oneTunnelOneCore returns the rule for a tunnel whose packets pass one core in a row while others idle.
func oneTunnelOneCore() Rule {
	return Rule{Class: OneTunnel, Label: "a single tunnel saturates one core",
		Means: "the load uses a single in-kernel tunnel, one core is busy for at least 93 % of the window, " +
			"and another idles for at least 40 %",
		Judge: func(o *Observation) Judgement {
			tunnel := o.tunnel()
			if tunnel == "" || factor.InUserspace(tunnel) || o.load().Tunnels > 1 {
				return Judgement{Score: absent}
			}
			s, why := o.ownSystem()
			switch {
			case why != "":
				return missing(why)
			case len(s.Cores) == 1:
				return Judgement{Score: absent}
			}
			facts := factList{s.coreFact(), s.softirqFact(), fact("tunnels", s.Node, tunnel, 1,
				"all streams share one tunnel")}
			return Judgement{Node: s.Node, Element: s.Full.Name, Facts: facts,
				Terms: []Term{s.full(), requires("slack-core",
					degree(1-s.Slack.Busy, .15, .4)).by(facts[0])},
				GainAtMost: ratio(float64(len(s.Cores))*s.Full.Busy, s.Busy),
				Text: fmt.Sprintf("a single tunnel saturates %s of the %s while %s idles for %s",
					coreName(s.Full.Name), s.Node, coreName(s.Slack.Name), unit.Percent(1-s.Slack.Busy))}
		},
		Experiments: func(o *Observation) []Experiment {
			return append([]Experiment{{Factor: "tunnels", Doses: []string{"1", "2", "4"},
				Resource: []float64{1, 2, 4}, From: FromTester, Expect: 1,
				Why: "parallel tunnels run on more cores"}}, cpuDoses(o)...)
		},
		Remedies: append([]Remedy{{Do: "spread the traffic over several tunnels", Factor: "tunnels",
			Level: "2", Risk: "each flow still uses one tunnel"}}, spreadRemedies()...)}
}
