package diagnosis

import (
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
)

// unstable describes a result that varies within a trial or between trials. acrossTrials adds the evidence of
// several trials.
var unstable = rule(Unstable, `
	label: the path is unstable
	means: no other cause has evidence, and one of these holds: the throughput varies by at least 50 \
		% within the window, or drifts; the rates of six or more trials have an interquartile range \
		of at least 27 % of their median; the idle path loses at least 7 % of the probes; under \
		load, the path repeatedly stops: three or more consecutive probes are lost while no data \
		arrives
	traits: ends quiet
	any: measure longer, or stop intermittent traffic on the path
`, func(o *Observation) Candidate {
	j := missing("the consistency of the throughput is not known")
	if uneven, ok := o.Metric(metrics.Consistency); ok {
		e := seen(metrics.Consistency, uneven, "throughput varies by %h within the window")
		j.instead(o.varies(degree(uneven, .2, .6), e), e.Text+": no single number describes it")
	}

	if lost, ok := o.idle(metrics.ProbeLossIdle); ok {
		e := wholePath.fact(metrics.ProbeLossIdle, lost, "the idle path loses %h of the probes")
		j.instead(o.varies(degree(lost, .02, .1), e), e.Text+": no load can be checked on it")
	}

	n, ns := o.outages()
	if n > 1 {
		e := wholePath.fact("outages", float64(n),
			"probes were lost in %d runs, hardly any in between", n)
		j.instead(o.varies(1, e), say("the path goes down %d times, for about %n each", n, ns))
	}

	return j
})

// varies returns a term that requires a varying result. share is the degree of the variation, and e its
// evidence.
func (o *Observation) varies(share float64, e Fact) Term {
	drifts := slices.ContainsFunc(o.Reasons, func(r evidence.Reason) bool {
		return r.Kind == evidence.ReasonDrift || r.Kind == evidence.ReasonLinkFlap
	})
	return requires("varies", max(share, .8*yes(drifts))).by(e)
}

// instead adds evidence of another kind for the candidate's class. If the new evidence is stronger, it comes
// first and its text replaces the candidate's.
func (j *Candidate) instead(t Term, text string) {
	if j.NotExamined == "" && t.Met <= j.Terms[0].Met {
		*j = j.facts(*t.By)
		return
	}

	j.Facts = append(factList{*t.By}, j.Facts...)
	j.Terms = append([]Term{t}, j.Terms[min(1, len(j.Terms)):]...)
	j.Text, j.NotExamined = text, ""
}

// lostWhenIdle returns a term that contradicts causes that need a load if packets are also lost without a
// load.
func (o *Observation) lostWhenIdle() Term {
	lost, _ := o.idle(metrics.ProbeLossIdle)
	return contradicts("idle-loss", lost, .01, .05)
}

// minTrials is the minimum number of trials for the spread of a cell. With fewer, the interquartile range is
// nearly the full range.
const minTrials = 6

// caution is the spread between trials above which the diagnosis mentions it.
const caution = .1

// acrossTrials adds the spread of the trials' rates to the candidates. It also returns the spread as a
// caution to show with the diagnosis. ok is false if the spread is small.
func acrossTrials(checked []Candidate, rates []float64) (e Fact, ok bool) {
	apart := spread(rates)
	if apart < caution {
		return e, false
	}

	e = seen(metrics.Goodput, statistics.Median(rates), "the rates of the %d trials differ: their "+
		"interquartile range is %h of the median", len(rates), apart)
	e.Low, e.High = new(slices.Min(rates)), new(slices.Max(rates))
	for i := range checked {
		j := &checked[i]
		if j.Class == Unstable && len(rates) >= minTrials {
			j.instead(requires("varies", apart, .1, .4).by(e), e.Text+": no single number describes the cell")
			j.rate(weights())
			leaveToCauses(checked)
		}
	}

	return e, true
}

// leaveToCauses lowers the score of an unstable path if another cause has evidence. An unstable path is then
// the diagnosis only if no other cause has evidence.
func leaveToCauses(all []Candidate) {
	highest := 0.0
	for _, j := range all {
		if j.NotExamined == "" && j.Class != Unstable {
			highest = max(highest, j.Score)
		}
	}

	for i := range all {
		if all[i].Class == Unstable && highest >= contributes {
			all[i].Score = min(all[i].Score, highest-contributes)
		}
	}
}
