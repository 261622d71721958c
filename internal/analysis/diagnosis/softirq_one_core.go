package diagnosis

import (
	"fmt"

	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// softirqOneCore returns the rule for a router that moves all packets on one core while another has time.
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
			slack := fact("cpu_idle_ratio", s.Node, s.Slack.Name, 1-s.Slack.Busy,
				coreName(s.Slack.Name)+" idled for "+unit.Percent(1-s.Slack.Busy))
			return Judgement{Node: s.Node, Element: s.Full.Name, Facts: facts,
				Terms: []Term{s.full(), requires("slack-core", degree(1-s.Slack.Busy, .1, .4)).by(slack),
					softirqWork(s.Full.Softirq+s.Full.IRQ, s.Full.Unclassified, s.Full.Busy).by(facts[1]),
					o.quota(s.Node), contradicts("tunnel", yes(o.tunnel() != ""))}, // see oneTunnelOneCore
				Text: fmt.Sprintf("the %s's %s is saturated by softirq while %s idles for %s: one "+
					"receive queue",
					s.Node, coreName(s.Full.Name), coreName(s.Slack.Name), unit.Percent(1-s.Slack.Busy)),
				GainAtMost: ratio(float64(len(s.Cores))*s.Full.Busy, s.Busy)}
		}),
		Experiments: cpuDoses,
		Remedies:    spreadRemedies()}
}
