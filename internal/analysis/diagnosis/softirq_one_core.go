package diagnosis

import (
	"fmt"

	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// softirqOneCore is a router whose packets are all moved by one core while another has time.
func softirqOneCore() Rule {
	return Rule{Class: SoftirqOneCore, Label: "one core of the router is saturated by softirq",
		Means: "a core of the router is busy for at least 93 % of the window, mostly in interrupts and " +
			"softirqs, while another idles for at least 40 %",
		Judge: given((*Observation).ownSystem, func(o *Observation, s system) Judgement {
			facts := factList{s.coreFact(), s.softirqFact()}
			if len(s.Cores) == 1 {
				return Judgement{Score: absent, Facts: factList{fact("cpu_cores", s.Node, "", 1,
					"the "+s.Node+" has one core")}}
			}
			soft := softirqShare(s.Full.Softirq+s.Full.IRQ, s.Full.Untold, s.Full.Busy)
			slack := ramp(1-s.Slack.Busy, .1, .4, -3, .5)
			score := o.full(s, 2.5) + soft + slack - o.heldDown(s.Node)
			if o.tunnel() != "" {
				score -= 1 // see oneTunnelOneCore
			}
			return Judgement{Score: score, Node: s.Node, Element: s.Full.Name,
				Text: fmt.Sprintf("the %s's %s is saturated by softirq while %s idles for %s: one "+
					"receive queue",
					s.Node, coreName(s.Full.Name), coreName(s.Slack.Name), unit.Percent(1-s.Slack.Busy)),
				GainAtMost: ratio(float64(len(s.Cores))*s.Full.Busy, s.Busy), Facts: facts,
			}.weighed(s.busy()+slack, soft)
		}),
		Experiments: cpuDoses,
		Remedies:    spreadRemedies()}
}
