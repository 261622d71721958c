package diagnosis

import (
	"fmt"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// policer returns the rule for a policer, which drops what exceeds a rate instead of queueing it.
func policer() Rule {
	return Rule{Class: Policer, Label: "a policer drops traffic above its rate", Ends: true,
		Means: "an ingress filter drops at least 0.3 % of the load's packets; without a view of the " +
			"router: 2 % of the segments are retransmitted while no queueing delay is added",
		Judge: func(o *Observation) Judgement {
			loss, name, ok := o.lossOf()
			probes, tcp, least, timed := o.addedDelay()
			if !ok || !timed {
				return missing("the load's loss and delay are not known")
			}
			var q queue
			all, _ := o.queues(true)
			for _, one := range all {
				if one.drops > q.drops {
					q = one
				}
			}
			facts := factList{fact(name, "", "", loss, unit.Percent(loss)+
				" of the load's packets were lost"), delayFact(least, probes, "queueing added "+
				unit.Nanoseconds(probes)+" to the probe RTT")}
			got, _ := o.Metric(metrics.Goodput)
			delay, seen, guess := max(probes, tcp), yes(q.drops > 0), yes(q.drops == 0 && o.blind())
			lossy, idle := degree(loss, .005, .03), o.lostWhenIdle()
			idle.Met *= guess
			j := Judgement{Element: "path", Text: "a policer on the path at about " + mbps(got)}
			switch {
			case q.drops > 0:
				passed := got / (1 - min(loss, .9))
				j = Judgement{Node: q.node, Element: q.port, GainAtMost: o.gainToTester(),
					Text: fmt.Sprintf("a policer on %s drops %s of what arrives and passes %s", q.place(),
						unit.Percent(q.lost()), mbps(min(passed, got*1.05)))}
				facts = append(factList{fact("drops", q.node, q.port+"@ingress", q.drops, fmt.Sprintf(
					"the ingress filter on %s dropped %.0f packets", q.place(), q.drops))}, facts...)
			case len(all) > 0:
				facts = append(factList{fact("drops", "", "", 0, "no ingress filter on the path dropped "+
					"a packet")}, facts...)
			}
			dropped := requires("drops", max(degree(q.lost(), .0005, .003), guess*lossy))
			if len(all) > 0 || lossy < .8 { // much loss does not speak against a policer
				dropped = dropped.by(facts[0])
			}
			j.Facts = facts
			return j.with(dropped, requires("no-delay", max(1-guess, degree(delay, 5e6, 1e6))),
				supports("filter", seen), supports("short-delay", seen*degree(delay, 20e6, 5e6)), idle)
		},
		Remedies: []Remedy{
			{System: "linux", Do: "shape instead of policing, or raise the policer's burst",
				Commands: []string{"tc -s filter show dev DEV ingress"}, Risk: "a shaper adds delay"},
			{System: "routeros", Do: "use a queue instead of a limit rule",
				Risk: "FastTrack bypasses queues"},
			{Do: "if the provider polices: shape slightly below its rate, so that nothing is dropped",
				Risk: "costs a few per cent of the rate"},
		}}
}

// blind reports whether no router of the way has samples.
func (o *Observation) blind() bool {
	return !slices.ContainsFunc(o.Routers(), func(node string) bool {
		return len(o.Trial.Nodes[node].Samples) > 0
	})
}
