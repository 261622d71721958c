package diagnosis

import (
	"fmt"
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
		Means: "throughput within the window varies by at least 50 %, or drifts; or the rates of three or " +
			"more trials have an interquartile range of at least 27 % of the median; or the idle path " +
			"loses at least 7 % of the probes; or probes under load are lost in runs of three or more " +
			"with hardly any lost in between; and nothing else explains it",
		Judge: func(o *Observation) Judgement {
			j := missing("the consistency of the throughput is not known")
			if uneven, ok := o.Metric(metrics.Consistency); ok {
				text := "throughput varies by " + unit.Percent(uneven)
				j = Judgement{Score: ramp(uneven, .2, .6, -4, 1) + o.wants(),
					Text:  text + ": no single number describes it",
					Facts: grounds{fact(metrics.Consistency, "", "", uneven, text)}}
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
	j.Facts = append(grounds{e}, j.Facts...)
}

// lostWhenIdle is what loss without a load speaks against causes that need one.
func (o *Observation) lostWhenIdle() float64 {
	lost, _ := o.idle(metrics.ProbeLossIdle)
	return ramp(lost, .01, .05, 0, 5)
}

// leastTrials are as many as tell the spread of a cell.
const leastTrials = 3

// fixed are the classes that hold a load at a rate: where the rate is another in each trial, none of them is
// what did. One that comes and goes, such as other load or random loss, may be.
var fixed = []string{Healthy, Tester, LinkRate, Shaper, Policer, ClientCPU, ServerCPU, SlowSender, SlowReader,
	SendBuffer, ReceiveWindow, SoftirqOneCore, SoftirqAllCores, VPNProcess, CryptoWorkers, RuleList,
	ConnectionRate, OneTunnel, SharedCPU}

// acrossTrials adds to what single trials say how far their rates lie apart.
func acrossTrials(judged []Judgement, rates []float64) {
	i := slices.IndexFunc(judged, func(j Judgement) bool { return j.Class == Unstable })
	if len(rates) < leastTrials || i < 0 {
		return
	}
	apart := spread(rates)
	score := ramp(apart, .1, .4, -4, 3)
	text := fmt.Sprintf("the rates of the %d trials differ by %s", len(rates), unit.Percent(apart))
	e := fact(metrics.Goodput, "", "", statistics.Median(rates), text)
	e.Low, e.High = new(slices.Min(rates)), new(slices.Max(rates))
	judged[i].instead(score, text+": no single number describes the cell", e)
	makeIncredible(judged, fixed, ramp(score, 0, 2, 0, 5), e)
}

// behindTester are the classes that say that the router has no more to give: where the tester itself gives no
// more, that was not seen.
var behindTester = []string{SoftirqOneCore, SoftirqAllCores, VPNProcess, CryptoWorkers, RuleList, LogFlood,
	ClockDown, ConnectionRate, OneTunnel, BacklogBudget}

// makeIncredible lowers the scores of classes by what makes them incredible.
func makeIncredible(judged []Judgement, classes []string, by float64, e evidence.Evidence) {
	if by <= 0 {
		return
	}
	for i := range judged {
		j := &judged[i]
		if j.NotExamined == "" && slices.Contains(classes, j.Class) {
			j.Score -= by
			j.Facts = append(grounds{e}, j.Facts[:min(len(j.Facts), mostFacts-1)]...)
		}
	}
}
