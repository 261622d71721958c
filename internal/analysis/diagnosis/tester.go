package diagnosis

import (
	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// testerLimited is the answer where the generator, not the path, was measured.
func testerLimited() Rule {
	return Rule{Class: Tester, Label: "the tester itself", Ends: true, Quiet: true,
		Means: "the result is within a fifth of what the tester reaches with nothing between",
		Judge: func(o *Observation) Judgement {
			name := metrics.RateOf(o.Trial.Row.Factors)
			got, ok := o.Metric(name)
			if !ok || o.Tester.Value <= 0 {
				return missing("what the tester reaches alone is not known")
			}
			share := got / o.Tester.Value
			return Judgement{Score: ramp(share, .6, .95, -4, 3), Node: "",
				Text: "the tester itself: it reaches no more with nothing between",
				Facts: []evidence.Evidence{against(fact(name, "", "", got,
					"the result is "+unit.Percent(share)+
						" of what the tester reaches alone"), o.Tester.Value)}}
		}}
}
