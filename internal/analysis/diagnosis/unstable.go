package diagnosis

import (
	"fmt"
	"math"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// unstable is a result that is not the same from one moment, or one trial, to the next. What is said of
// several trials together is added by acrossTrials.
func unstable() Rule {
	return Rule{Class: Unstable, Label: "the path is unstable", Ends: true, Quiet: true,
		Means: "throughput within the window varies by at least 50 %, or drifts; or the rates of six or " +
			"more trials have an interquartile range of at least 27 % of the median; or the idle path " +
			"loses at least 7 % of the probes; or probes under load are lost in runs of three or more " +
			"with hardly any lost in between, and no data arrives meanwhile; and no other class has " +
			"evidence",
		Judge: func(o *Observation) Judgement {
			j := missing("the consistency of the throughput is not known")
			if uneven, ok := o.Metric(metrics.Consistency); ok {
				text := "throughput varies by " + unit.Percent(uneven)
				varies := ramp(uneven, .2, .6, -4, 1)
				j = Judgement{Score: varies + o.wants(), Text: text + ": no single number describes it",
					Facts: factList{fact(metrics.Consistency, "", "", uneven, text)}}.weighed(varies)
				for _, r := range o.Reasons {
					if r.Kind == evidence.ReasonDrift || r.Kind == evidence.ReasonLinkFlap {
						j.Score = max(j.Score, -.5) + 1
						j.Facts = append(j.Facts, r.Facts...)
					}
				}
			}
			if lost, ok := o.idle(metrics.ProbeLossIdle); ok {
				text := "the idle path loses " + unit.Percent(lost) + " of the probes"
				e := fact(metrics.ProbeLossIdle, "", "path", lost, text)
				j.instead(ramp(lost, .02, .1, -4, 2.5), text+": no load can be judged on it", e)
			}
			if n, ns := o.outages(); n > 1 {
				text := fmt.Sprintf("the path goes down %d times, for about %s each", n, unit.Nanoseconds(ns))
				e := fact("outages", "", "path", float64(n), fmt.Sprintf("probes were lost in %d runs, "+
					"hardly any in between", n))
				j.instead(4, text, e)
			}
			return j
		},
		Remedies: []Remedy{{Do: "measure longer, or stop whatever else comes and goes on the path"}}}
}

// instead puts further evidence of the same class first if it weighs more, and last if not.
func (j *Judgement) instead(score float64, text string, e evidence.Evidence) {
	if j.NotExamined == "" && score <= j.Score {
		j.Facts = append(slices.Clone(j.Facts), e)
		return
	}
	j.Score, j.Text, j.NotExamined = score, text, ""
	j.Facts = append(factList{e}, j.Facts...)
}

// lostWhenIdle is what loss without a load speaks against causes that need one.
func (o *Observation) lostWhenIdle() float64 {
	lost, _ := o.idle(metrics.ProbeLossIdle)
	return ramp(lost, .01, .05, 0, 5)
}

// minTrials suffice to tell the spread of a cell: of fewer the interquartile range is nearly the whole
// range.
const minTrials = 6

// caution is the rate from which on a spread of the trials is worth a word.
const caution = .1

// acrossTrials adds to what single trials say how far their rates lie apart, and returns that as a caution
// beside the verdict; ok is false where they lie close together.
func acrossTrials(judged []Judgement, rates []float64) (e evidence.Evidence, ok bool) {
	apart := spread(rates)
	if len(rates) < 2 || apart < caution {
		return e, false
	}
	text := fmt.Sprintf("the rates of the %d trials differ by %s", len(rates), unit.Percent(apart))
	e = fact(metrics.Goodput, "", "", statistics.Median(rates), text)
	e.Low, e.High = new(slices.Min(rates)), new(slices.Max(rates))
	i := slices.IndexFunc(judged, func(j Judgement) bool { return j.Class == Unstable })
	if len(rates) >= minTrials && i >= 0 {
		judged[i].instead(ramp(apart, .1, .4, -4, 3), text+": no single number describes the cell", e)
		leaveToCauses(judged)
	}
	return e, true
}

// leaveToCauses lowers the score of an unstable path below that of a cause that has evidence: it is what is
// left where none has.
func leaveToCauses(all []Judgement) {
	most := math.Inf(-1)
	for _, j := range all {
		if j.NotExamined == "" && j.Class != Unstable {
			most = max(most, j.Score)
		}
	}
	for i := range all {
		if all[i].Class == Unstable && most >= contributes {
			all[i].Score = min(all[i].Score, most-contributes)
		}
	}
}

// behindTester are the classes that say that the router has no more to give: where the tester itself gives no
// more, that was not seen.
var behindTester = []string{SoftirqOneCore, SoftirqAllCores, VPNProcess, CryptoWorkers, RuleList, LogFlood,
	ClockDown, ConnectionRate, OneTunnel, BacklogBudget}

// makeIncredible lowers the scores of classes that have evidence by what makes them incredible.
func makeIncredible(judged []Judgement, classes []string, by float64, e evidence.Evidence) {
	if by <= 0 {
		return
	}
	for i := range judged {
		j := &judged[i]
		if j.Score > 0 && slices.Contains(classes, j.Class) {
			j.Score, j.Against = j.Score-by, &e
		}
	}
}
