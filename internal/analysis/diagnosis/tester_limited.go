package diagnosis

import (
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// maxTesterShare is the share of the tester's result alone above which that result cannot have been its
// maximum.
const maxTesterShare = 1.25

// testerLimited returns the rule for trials that measured the generator, not the path.
func testerLimited() Rule {
	return Rule{Class: Tester, Label: "the tester is the limit", Ends: true, Quiet: true,
		Means: "the result is within a fifth of what the tester reaches without the router, and the cores " +
			"that it shares with the router are not saturated; or it could not send 1 % of the " +
			"requested rate",
		Judge: func(o *Observation) Judgement {
			j := o.headroom()
			i := slices.IndexFunc(o.Reasons, func(r evidence.Reason) bool {
				return r.Kind == evidence.ReasonTesterLimited && len(r.Facts) > 0 &&
					r.Facts[0].Metric == metrics.UnsentRatio
			})
			if i >= 0 {
				e := o.Reasons[i].Facts[0]
				e.Text = o.Reasons[i].Text
				return Judgement{Terms: []Term{requires("no-headroom", 1), contradicts("shared-cores", 0)},
					Text:  "the tester is the limit: it cannot send the requested rate",
					Facts: append(factList{e}, j.Facts...)}
			}
			return j
		}}
}

// headroom compares the result with what the tester reached alone, in the same unit and with the same work.
func (o *Observation) headroom() Judgement {
	got, ok := o.Metric(o.Tester.Metric)
	if !ok || o.Tester.Value <= 0 {
		return missing("what the tester reaches alone is not known")
	}
	if t := o.Topology(); t != nil && o.tunnel() != "" && (t.Ends(t.Tunnel[0]) || t.Ends(t.Tunnel[1])) {
		return missing("the tester's ends encrypt, and what they reach doing so was not measured")
	}
	share := got / o.Tester.Value
	if share > maxTesterShare {
		return missing("the load got " + unit.Percent(share) + " of what the tester reached alone: " +
			"that was not its maximum")
	}
	full := 0.0
	if s, why := o.systemAt(record.HostNode); why == "" && o.Run.Near().CPUs == record.CPUsShared {
		full = degree(s.Busy/float64(len(s.Cores)), .85, .97) // see sharedCPU
	}
	facts := factList{against(fact(o.Tester.Metric, "", "", got, "the result is "+unit.Percent(share)+
		" of what the tester reaches alone"), o.Tester.Value)}
	return Judgement{Text: "the tester is the limit: it reaches no more without the router", Facts: facts,
		Terms: []Term{requires("no-headroom", degree(share, .6, .95)).by(facts[0]),
			contradicts("shared-cores", full)}}
}
