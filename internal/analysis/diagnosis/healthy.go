package diagnosis

import (
	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// healthy is the answer where a load that asked for a rate got it whole.
func healthy() Rule {
	return Rule{Class: Healthy, Label: "nothing holds this load back", Ends: true, Quiet: true,
		Means: "a load that asked for a rate got 99 % of it, without loss and with little delay",
		Judge: func(o *Observation) Judgement {
			rate := o.load().RateBps
			got, ok := o.Metric(metrics.Goodput)
			if !ok {
				return missing("there is no goodput")
			}
			if rate == 0 {
				return Judgement{Score: -4, Facts: nil}
			}
			share := got / rate
			return Judgement{Score: ramp(share, .9, .99, -4, 3),
				Text: "nothing holds this load back: it gets the rate that it asks for",
				Facts: []evidence.Evidence{against(fact(metrics.Goodput, "", "", got,
					unit.Percent(share)+" of the rate that was asked for arrived"), rate)}}
		}}
}
