package diagnosis

import (
	"fmt"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// held is a queue that holds data back for its rate, with the score that this limits the load. Where no
// queue is watched, or none holds back, ok is false.
func (o *Observation) held() (q queue, score float64, why string) {
	all, why := o.queues(false)
	if len(all) == 0 {
		return queue{}, 0, why
	}
	for _, one := range all {
		if q.node == "" || one.overlimits > q.overlimits {
			q = one
		}
	}
	score = ramp(q.overlimits, .03, .25, -5, 2.8) + ramp(q.uneven, .1, .5, 1.2, -1.5) + o.wants()
	if probes, tcp, _, ok := o.addedDelay(); ok {
		score += ramp(max(probes, tcp), 1e6, 5e6, -.5, .8)
	}
	return q, score, ""
}

// heldFacts are the numbers of a queue that holds back.
func (o *Observation) heldFacts(q queue) []evidence.Evidence {
	out := []evidence.Evidence{
		fact("overlimits", q.node, q.port, q.overlimits, fmt.Sprintf("the queue of %s held back %s times "+
			"per packet for its rate", q.place(), unit.Significant(q.overlimits, 2))),
		fact("tx_bytes", q.node, q.port, q.rateBps, fmt.Sprintf("the port sent %s, even within %s",
			mbps(q.rateBps), unit.Percent(q.uneven))),
	}
	if probes, tcp, least, ok := o.addedDelay(); ok {
		out = append(out, against(fact("rtt_loaded_p50_ns", "", "", least+probes, "waiting added "+
			milliseconds(probes)+" to the round trip of probes, "+milliseconds(tcp)+" to that of TCP"),
			least))
	}
	return append(out, fact("drops", q.node, q.port, q.drops, fmt.Sprintf("the queue dropped %s of its "+
		"packets",
		unit.Percent(q.lost()))))
}

// lineShare is goodput ÷ the rate of the path that is stated or read; 0 where none is.
func (o *Observation) lineShare() float64 {
	got, _ := o.Metric(metrics.Goodput)
	return ratio(got, o.Line.Value)
}

// linkRate is a link that carries no more.
func linkRate() Rule {
	return Rule{Class: LinkRate, Label: "the rate of the link is reached", Ends: true,
		Means: "95 % of the rate of the path that is stated or read arrives; or one FIFO holds packets " +
			"back for a rate, once per four packets or more, while what it sends is even and " +
			"waiting adds delay",
		Judge: func(o *Observation) Judgement {
			q, score, why := o.held()
			share := o.lineShare()
			line := -9.0
			if share > 0 && (q.node == "" || q.overlimits < .03) {
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
				return Judgement{Score: line, Element: o.Line.Kind, GainAtMost: max(1/max(share, .1), 1),
					Text: "the rate of the link is reached: " + mbps(got) + " of the " + mbps(o.Line.Value) +
						" of payload that it can carry",
					Facts: []evidence.Evidence{against(fact(metrics.Goodput, "", "", got, unit.Percent(share)+
						" of what "+o.Line.Kind+" leaves to payload arrived"), o.Line.Value)}}
			}
			if q.managed {
				score -= 6 // see shaper
			}
			if probes, tcp, _, ok := o.addedDelay(); ok {
				score -= ramp(max(probes, tcp), 45e6, 90e6, 0, 1.5)
			}
			return Judgement{Score: score, Node: q.node, Element: q.port, GainAtMost: o.gainToTester(),
				Text:  fmt.Sprintf("the link at %s carries %s", q.place(), mbps(q.rateBps)),
				Facts: o.heldFacts(q)}
		},
		Experiments: rateDoses,
		Remedies: []Remedy{{Do: "nothing at the router: a faster link is the remedy; keep its queue short " +
			"by a shaper a few percent below its rate", Risk: "a shaper costs CPU time"}}}
}

// gainToTester bounds a gain by what the tester alone reaches; 0 = not known.
func (o *Observation) gainToTester() float64 {
	got, ok := o.Metric(o.Tester.Metric)
	if !ok || got <= 0 || o.Tester.Value <= got {
		return 0
	}
	return o.Tester.Value / got
}

// flat is what two ends alone tell of a rate: delay before loss, and an even rate.
func (o *Observation) flat(why string) Judgement {
	uneven, ok := o.Metric(metrics.Consistency)
	probes, tcp, least, timed := o.addedDelay()
	if !ok || !timed {
		return missing(why)
	}
	got, _ := o.Metric(metrics.Goodput)
	score := ramp(uneven, .03, .2, 1, -2) + ramp(max(probes, tcp), 2e6, 15e6, -4, .8) + o.wants()
	return Judgement{Score: score, Element: "path", GainAtMost: o.gainToTester(),
		Text: "a link or shaper on the path, at " + mbps(got) + " of payload",
		Facts: []evidence.Evidence{fact(metrics.Consistency, "", "", uneven, "what arrived was even within "+
			unit.Percent(uneven)), against(fact("rtt_loaded_p50_ns", "", "", least+probes, "waiting added "+
			milliseconds(probes)+" to the round trip of probes"), least)}}
}

// rateDoses lower the rate from the tester's side: where a rate limits, goodput does not follow until the
// load asks for less than it.
func rateDoses(o *Observation, j Judgement) []Experiment {
	got, ok := o.Metric(metrics.Goodput)
	if !ok || got <= 0 {
		return nil
	}
	e := Experiment{Class: j.Class, Factor: "pacing", From: "tester", Expect: 1,
		Why: "a limit of the rate gives what is asked for below it, without waiting or loss"}
	if !o.IsTCP() {
		e.Factor = "rate"
	}
	for _, left := range []float64{.95, .9, .8} {
		e.Doses = append(e.Doses, fmt.Sprintf("%.0fk", got*left/1000))
		e.Resource = append(e.Resource, left)
	}
	out := []Experiment{e}
	if o.IsTCP() {
		out = append(out, Experiment{Class: j.Class, Factor: "mss", Doses: []string{"1200", "900", "600"},
			From: "tester", Expect: 0, Why: "a limit in bit/s leaves the rate as it is but for headers, " +
				"one in packets per second takes it down with their size"})
	}
	return out
}
