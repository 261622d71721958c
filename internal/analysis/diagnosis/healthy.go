package diagnosis

import (
	"cmp"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// healthy returns the rule for a load that asked for a rate and got all of it.
func healthy() Rule {
	return Rule{Class: Healthy, Label: "nothing limits this load", Ends: true, Quiet: true,
		Means: "a load with a set rate got 99 % of it, without loss (less than 0.3 % of its packets lost " +
			"or retransmitted, less than 2 % of the probes lost) and with little delay (less than 15 ms " +
			"above the idle RTT, or above the minimum RTT where that was not measured); or 95 % of the " +
			"connections begun at a set rate completed, and less than 1 % failed",
		Judge: func(o *Observation) Judgement {
			if o.load().ConnectionRate > 0 {
				return o.allConnections()
			}
			rate := o.load().RateBps
			got, ok := o.Metric(metrics.Goodput)
			if !ok {
				return missing("no goodput was measured")
			}
			if rate == 0 {
				return Judgement{Score: absent}
			}
			share := got / rate
			loss, name, ok := o.lossOf()
			if !ok {
				return missing("packet loss is not known: " + cmp.Or(o.Metrics.Missing[name],
					"nothing counted lost packets"))
			}
			probes, tcp, least, ok := o.addedDelay()
			if !ok {
				return missing("the RTT under load is not known")
			}
			added := probes
			if len(o.Metrics.RTTs["loaded"]) == 0 {
				added = tcp
			}
			if idle, known := o.idle(metrics.RTT("idle", metrics.Percentiles[0])); known {
				least, added = idle, max(least+added-idle, 0)
			}
			lost, _ := o.Metric(metrics.ProbeLoss)
			facts := factList{against(fact(metrics.Goodput, "", "", got, unit.Percent(share)+
				" of the requested rate arrived"), rate), lossFact(name, loss), delayFact(least, added,
				"the load added "+unit.Nanoseconds(added)+" to an RTT of "+unit.Nanoseconds(least))}
			if lost > 0 {
				facts = append(facts, fact(metrics.ProbeLoss, "", "", lost, unit.Percent(lost)+
					" of the probes were lost"))
			}
			return o.unharmed("nothing limits this load: it gets the rate it asks for, without loss and "+
				"with little delay", facts, degree(share, .9, .99), degree(loss, .001, .005),
				degree(added, 10e6, 20e6), degree(lost, .01, .03))
		}}
}

// allConnections judges short flows that are started at a rate.
func (o *Observation) allConnections() Judgement {
	got, ok := o.Metric(metrics.FlowRate)
	if !ok {
		return missing("no connection was completed")
	}
	share, failed := o.connected()
	facts := factList{against(fact(metrics.FlowRate, "", "", got, unit.Percent(share)+
		" of the connections due in the window completed in it"), o.load().ConnectionRate),
		fact(metrics.FlowFailed, "", "", failed, unit.Percent(failed)+" of the connections failed")}
	return o.unharmed("nothing holds this load back: every connection completes at the requested rate", facts,
		degree(share, .8, .95), degree(failed, .001, .01), 0, 0)
}

// unharmed requires that a load gets all it asks for, without loss or delay; facts holds the evidence in this
// order.
func (o *Observation) unharmed(text string, facts factList, got, loss, delay, probeLoss float64) Judgement {
	terms := []Term{requires("complete", got), contradicts("loss", loss), contradicts("delay", delay),
		contradicts("probe-loss", probeLoss), o.lostWhenIdle()}
	for i, e := range facts {
		terms[i] = terms[i].by(e)
	}
	return Judgement{Text: text, Terms: terms, Facts: facts}
}

// connected returns the shares of the flows due in the window that completed by its end, and that failed. How
// many are due varies where they start at random.
func (o *Observation) connected() (done, failed float64) {
	flows := o.Trial.Traffic.ShortFlows
	if flows == nil || flows.Started == 0 {
		return 0, 0
	}
	return float64(flows.Completed) / float64(flows.Started), float64(flows.Failed) / float64(flows.Started)
}
