package diagnosis

import (
	"cmp"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// healthy is the answer where a load that asked for a rate got it whole.
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
				return Judgement{Score: unlikely}
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
			asked := against(fact(metrics.Goodput, "", "", got, unit.Percent(share)+
				" of the requested rate arrived"), rate)
			facts := factList{asked, lossFact(name, loss), delayFact(least, added, "the load "+
				"added "+unit.Nanoseconds(added)+" to an RTT of "+unit.Nanoseconds(least))}
			if lost > 0 {
				facts = append(facts, fact(metrics.ProbeLoss, "", "", lost, unit.Percent(lost)+
					" of the probes were lost"))
			}
			by := []float64{ramp(share, .9, .99, unlikely, 3), -ramp(loss, .001, .005, 0, 6),
				-ramp(added, 10e6, 20e6, 0, 6), -ramp(lost, .01, .03, 0, 6)}
			return Judgement{Score: by[0] + by[1] + by[2] + by[3] - o.lostWhenIdle(),
				Text: "nothing limits this load: it gets the rate it asks for, without loss and with " +
					"little delay", Facts: facts}.weighed(by[:len(facts)]...)
		}}
}

// allConnections is the answer for short flows that are begun at a rate.
func (o *Observation) allConnections() Judgement {
	got, ok := o.Metric(metrics.FlowRate)
	if !ok {
		return missing("no connection was completed")
	}
	share, failed := o.connected()
	done, fails := ramp(share, .8, .95, unlikely, 3), -ramp(failed, .001, .01, 0, 6)
	return Judgement{Score: done + fails - o.lostWhenIdle(),
		Text: "nothing holds this load back: every connection completes at the requested rate",
		Facts: factList{against(fact(metrics.FlowRate, "", "", got, unit.Percent(share)+
			" of the connections due in the window completed in it"), o.load().ConnectionRate),
			fact(metrics.FlowFailed, "", "", failed, unit.Percent(failed)+" of the connections failed")},
	}.weighed(done, fails)
}

// connected are the shares of the flows to start in the window that were done by its end, and that failed.
// How many are to start varies where they come at random.
func (o *Observation) connected() (done, failed float64) {
	flows := o.Trial.Traffic.ShortFlows
	if flows == nil || flows.Started == 0 {
		return 0, 0
	}
	return float64(flows.Completed) / float64(flows.Started), float64(flows.Failed) / float64(flows.Started)
}
