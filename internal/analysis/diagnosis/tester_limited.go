package diagnosis

import (
	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// maxTesterShare is the factor by which a result may exceed the tester's rate without the router. A larger
// result shows that this rate was not the tester's maximum.
const maxTesterShare = 1.25

// testerLimited describes trials that measured the load generator instead of the path.
var testerLimited = rule(Tester, `
	label: the tester is the limit
	means: the result is at least 80 % of what the tester reaches without the router, and any cores \
		that it shares with the router are not saturated; or the tester fails to send 1 % of the \
		requested rate
	traits: ends quiet at-capacity any-rate
	explains: in-router
`, func(o *Observation) Candidate {
	j := o.headroom()
	for _, r := range o.Reasons {
		if r.Kind == evidence.ReasonTesterLimited && len(r.Facts) > 0 &&
			r.Facts[0].Metric == metrics.UnsentRatio {
			e := r.Facts[0]
			e.Text = r.Text
			return candidate(requires("no-headroom", 1).by(e)).
				facts(j.evidence()...).
				text("the tester is the limit: it cannot send the requested rate")
		}
	}
	return j
})

// headroom compares the result with the rate that the tester reached without the router under the same load.
func (o *Observation) headroom() Candidate {
	got, ok := o.Metric(o.Tester.Metric)
	if !ok || o.Tester.Value <= 0 {
		return missing("what the tester reaches alone is not known")
	}

	t := o.Topology()
	if o.tunnel() != "" && (t.Ends(t.Tunnel[0]) || t.Ends(t.Tunnel[1])) {
		return missing("the tester's ends encrypt, and what they reach doing so was not measured")
	}

	share := got / o.Tester.Value
	if share > maxTesterShare {
		return missing(say("the load got %h of what the tester reached alone: that was not its maximum",
			share))
	}

	busy := 0.0
	if !o.Run.Near().OwnCPUs() {
		s, _ := o.systemAt(record.HostNode)
		busy = s.mean() // see sharedCPU
	}

	return candidate(requires("no-headroom", share, .6, .95).by(
		against(seen(o.Tester.Metric, got, "the result is %h of what the tester reaches alone", share),
			o.Tester.Value)),
		contradicts("shared-cores", busy, .85, .97)).
		text("the tester is the limit: it reaches no more without the router")
}
