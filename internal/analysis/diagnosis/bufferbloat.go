package diagnosis

import (
	"fmt"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// belowLimit is the share of a rate at which the queue in front of it drains.
const belowLimit = .8

// bufferbloat returns the rule for a queue in which packets wait long: the rate is fine, the delay is the
// trouble.
func bufferbloat() Rule {
	return Rule{Class: Bufferbloat, Label: "an oversized queue adds too much delay", Ends: true, Delay: true,
		Means: "the median RTT under load is at least 55 ms above the minimum, or 40 ms in front of a rate " +
			"limit whose FIFO drops nothing",
		Judge: func(o *Observation) Judgement {
			probes, tcp, least, ok := o.addedDelay()
			if !ok {
				return missing("the RTT under load is not known")
			}
			added := min(probes, max(tcp, probes/2))
			if !o.IsTCP() || tcp == 0 {
				added = probes
			}
			facts := factList{delayFact(least, probes, "the median probe RTT was "+
				unit.Nanoseconds(least+probes)+" under load, against a minimum of "+unit.Nanoseconds(least))}
			j := Judgement{Element: "path", Facts: facts,
				Text: "a queue on the path is oversized: packets wait " + unit.Nanoseconds(added)}
			lossless, full := 0.0, degree(o.fullest(), .85, .97) // packets also wait for a full CPU
			if q, _, why := o.held(); why == "" && q.throttles().Met > .4 {
				j.Node, j.Element, full = q.node, q.port, 0
				if q.drops == 0 && !q.managed {
					lossless = degree(added, 30e6, 50e6) // the queue of a link would be full
				}
				waits := added / 1e9 * q.rateBps / 8
				j.Text = fmt.Sprintf("the queue at %s is oversized: packets wait %s at %s, about %s kB",
					q.place(), unit.Nanoseconds(added), mbps(q.rateBps), unit.Significant(waits/1e3, 2))
				j.Facts = append(j.Facts, o.heldFacts(q)[0])
			}
			a, ofData, known := o.Ledger().waits()
			if known && j.Node == "" {
				j.Node, j.Element = a.Node, a.Element
				j.Text += " at the " + a.Node + "'s " + a.Element + " port"
			}
			j.Terms = []Term{requires("delay", degree(added, 30e6, 70e6)).by(facts[0]),
				supports("lossless-fifo", lossless), contradicts("full-core", full),
				contradicts("acks-wait", yes(known && !ofData))}
			return j
		},
		Experiments: func(o *Observation) []Experiment {
			got, ok := o.Metric(metrics.Goodput)
			if !ok || got <= 0 {
				return nil
			}
			e := Experiment{Factor: string(factor.Pacing), From: FromTester, Expect: 1,
				Fix: fmt.Sprintf("%.0fk", got*belowLimit/1000),
				Why: "just below the limit nothing queues: if a queue is what delays, the delay falls"}
			if !o.IsTCP() {
				e.Factor = string(factor.Rate)
			}
			return []Experiment{e}
		},
		Remedies: []Remedy{
			{System: "linux", Do: "keep the queue short with fq_codel or CAKE, under a shaper at the link " +
				"rate",
				Commands: []string{"tc qdisc replace dev DEV root cake bandwidth RATE"}, Risk: "a shaper " +
					"costs CPU time",
				Factor: "queue", Level: "fq_codel"},
			{System: "openwrt", Do: "enable SQM", Commands: []string{"uci set sqm.@queue[0].enabled=1",
				"uci commit sqm", "service sqm restart"},
				Risk: "a shaper costs CPU time; flow offload bypasses it"},
			{System: "routeros", Do: "set the queue type to fq-codel or cake", Commands: []string{
				"/queue type add name=fq kind=fq-codel"}, Risk: "FastTrack bypasses queues"},
			{System: "freebsd", Do: "use an fq_codel scheduler", Commands: []string{
				"dnctl sched 1 config pipe 1 type fq_codel"}},
		}}
}
