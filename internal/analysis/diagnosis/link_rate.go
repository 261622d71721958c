package diagnosis

import (
	"fmt"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// linkRate is a link that carries no more.
func linkRate() Rule {
	return Rule{Class: LinkRate, Label: "the link is saturated", Ends: true,
		Means: "95 % of the path's stated or detected rate arrives; or a FIFO throttles at least " +
			"one packet in four at the rate that it is set to, while its output is even and queueing adds " +
			"delay",
		Judge: func(o *Observation) Judgement {
			q, score, why := o.held()
			share := o.lineShare()
			line := -9.0
			if share > 0 && (q.node == "" || q.holds() < .03) {
				line = ramp(share, .8, .95, -4, 3.5) + o.wants()
				if strings.HasPrefix(o.Line.Kind, string(factor.Policer)) {
					line -= 3 // it drops, where a link keeps waiting
				}
			}
			if why != "" && share == 0 {
				return o.flat(why)
			}
			if line > score || why != "" {
				got, _ := o.Metric(metrics.Goodput)
				j := Judgement{Score: line, Element: o.Line.Kind, GainAtMost: max(1/max(share, .1), 1),
					Text: "the link is saturated: " + mbps(got) + " of the " + mbps(o.Line.Value) +
						" of payload that it can carry",
					Facts: factList{against(fact(metrics.Goodput, "", "", got, unit.Percent(share)+
						" of the payload that "+o.Line.Kind+" can carry arrived"), o.Line.Value)}}
				return j.weighed(line)
			}
			if q.managed || q.owned {
				score -= 6 // see shaper
			}
			if probes, tcp, _, ok := o.addedDelay(); ok {
				score -= ramp(max(probes, tcp), 45e6, 90e6, 0, 1.5)
				if q.drops == 0 {
					score -= ramp(max(probes, tcp), 35e6, 50e6, 0, 3) // see bufferbloat
				}
			}
			return Judgement{Score: score, Node: q.node, Element: q.port, GainAtMost: o.gainToTester(),
				Text:  fmt.Sprintf("the link at %s is saturated at %s", q.place(), mbps(q.rateBps)),
				Facts: o.heldFacts(q)}.weighed(q.throttles())
		},
		Remedies: []Remedy{{Do: "only a faster link helps; to keep its queue short, shape a few per cent " +
			"below its rate", Risk: "a shaper costs CPU time", When: (*Observation).rateIsNotSet},
			{System: "linux", Do: "raise the rate of the queue if the link behind it can carry more",
				Commands: []string{"tc -s qdisc show", "tc -s class show dev DEV"},
				Risk:     "above the link rate, delay grows", When: (*Observation).rateIsSet}}}
}

// flat is what two ends alone tell of a rate: delay before loss, and an even rate.
func (o *Observation) flat(why string) Judgement {
	uneven, ok := o.Metric(metrics.Consistency)
	probes, tcp, least, timed := o.addedDelay()
	if !ok || !timed {
		return missing(why)
	}
	got, _ := o.Metric(metrics.Goodput)
	varies, waits := ramp(uneven, .03, .2, 1, -2), ramp(max(probes, tcp), 2e6, 15e6, -4, .8)
	return Judgement{Score: varies + waits + o.wants(), Element: "path", GainAtMost: o.gainToTester(),
		Text: "a link or shaper on the path, at " + mbps(got) + " of payload",
		Facts: factList{fact(metrics.Consistency, "", "", uneven, "throughput varied by "+
			unit.Percent(uneven)), delayFact(least, probes, "queueing added "+unit.Nanoseconds(probes)+
			" to the probe RTT")}}.weighed(varies, waits)
}
