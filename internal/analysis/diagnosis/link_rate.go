package diagnosis

import (
	"fmt"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// linkRate returns the rule for a link that carries no more.
func linkRate() Rule {
	return Rule{Class: LinkRate, Label: "the link is saturated", Ends: true,
		Means: "95 % of the path's stated or detected rate arrives; or a FIFO throttles at least " +
			"one packet in four at the rate that it is set to, while its output is even and queueing adds " +
			"delay",
		Judge: func(o *Observation) Judgement {
			q, held, why := o.held()
			share := o.lineShare()
			polices := strings.HasPrefix(o.Line.Kind, string(factor.Policer)) // they drop, a link queues
			switch {
			case share > 0 && !polices && (why != "" || q.holds() < .03):
				got, _ := o.Metric(metrics.Goodput)
				facts := factList{against(fact(metrics.Goodput, "", "", got, unit.Percent(share)+
					" of the payload that "+o.Line.Kind+" can carry arrived"), o.Line.Value)}
				return Judgement{Element: o.Line.Kind, GainAtMost: max(1/max(share, .1), 1), Facts: facts,
					Terms: []Term{requires("throttles", degree(share, .8, .95)).by(facts[0])},
					Text: "the link is saturated: " + mbps(got) + " of the " + mbps(o.Line.Value) +
						" of payload that it can carry"}
			case why != "":
				return o.flat(why)
			}
			return Judgement{Node: q.node, Element: q.port, GainAtMost: o.gainToTester(),
				Terms: append(held, contradicts("shaper", yes(q.managed || q.owned))), Facts: o.heldFacts(q),
				Text: fmt.Sprintf("the link at %s is saturated at %s", q.place(), mbps(q.rateBps))}
		},
		Remedies: []Remedy{{Do: "only a faster link helps; to keep its queue short, shape a few per cent " +
			"below its rate", Risk: "a shaper costs CPU time", When: (*Observation).rateIsNotSet},
			{System: "linux", Do: "raise the rate of the queue if the link behind it can carry more",
				Commands: []string{"tc -s qdisc show", "tc -s class show dev DEV"},
				Risk:     "above the link rate, delay grows", When: (*Observation).rateIsSet}}}
}

// flat judges a rate limit by what two ends alone see: delay before loss, and an even rate.
func (o *Observation) flat(why string) Judgement {
	uneven, ok := o.Metric(metrics.Consistency)
	probes, tcp, least, timed := o.addedDelay()
	if !ok || !timed {
		return missing(why)
	}
	got, _ := o.Metric(metrics.Goodput)
	facts := factList{fact(metrics.Consistency, "", "", uneven, "throughput varied by "+
		unit.Percent(uneven)), delayFact(least, probes, "queueing added "+unit.Nanoseconds(probes)+
		" to the probe RTT")}
	return Judgement{Element: "path", GainAtMost: o.gainToTester(), Facts: facts,
		Terms: []Term{requires("throttles", degree(max(probes, tcp), 2e6, 15e6)).by(facts[1]),
			contradicts("uneven", degree(uneven, .03, .2)).by(facts[0])},
		Text: "a link or shaper on the path, at " + mbps(got) + " of payload"}
}
