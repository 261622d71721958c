package diagnosis

import (
	"fmt"
	"slices"
)

// shaperBurst returns the rule for a shaper that passes less than it is set to, with packets waiting and
// cores idle: its burst is used up before its timer runs again (tc-tbf(8), burst).
func shaperBurst() Rule {
	return Rule{Class: ShaperBurst, Label: "a shaper passes less than its rate",
		Means: "a queue that is set to a rate always has packets waiting, and passes at most four fifths " +
			"of that rate while no core is full",
		Judge: func(o *Observation) Judgement {
			return o.belowRate(requires("idle-cores", degree(o.fullest(), .95, .8)), "its burst is too small")
		},
		Remedies: []Remedy{{System: "linux", Do: "raise its burst to what the rate carries in a few " +
			"milliseconds", Commands: []string{"tc -s -d qdisc show dev DEV", "tc -s -d class show dev DEV"},
			Risk: "more packets leave back to back"}}}
}

// shaperCPU is like shaperBurst for a full core, which moves no more.
func shaperCPU() Rule {
	return Rule{Class: ShaperCPU, Label: "the CPU holds a shaper below its rate",
		Means: "a queue that is set to a rate always has packets waiting, and passes at most four fifths " +
			"of that rate while a core is full",
		Judge: func(o *Observation) Judgement {
			return o.belowRate(requires("full-core", degree(o.fullest(), .85, .97)), "a core is full")
		},
		Experiments: cpuDoses,
		Remedies: []Remedy{{System: "linux", Do: "use a cheaper shaper, such as htb with fq_codel for " +
			"CAKE, or set the rate to what it holds"}}}
}

// belowRate judges the queue that always has packets and passes the least of its configured rate.
func (o *Observation) belowRate(cores Term, because string) Judgement {
	all, why := o.queues(false)
	if len(all) == 0 {
		return missing(why)
	}
	used := func(q queue) float64 { return ratio(q.rateBps, q.setBps) }
	var q queue
	for _, one := range all {
		bursts := slices.Contains([]string{"tbf", "htb", "hfsc"}, one.kind)
		if bursts && one.setBps > 0 && one.waited > .5 && (q.setBps == 0 || used(one) < used(q)) {
			q = one
		}
	}
	if q.setBps == 0 {
		return missing("no queue that is set to a rate has packets waiting in it")
	}
	return Judgement{Node: q.node, Element: q.port, GainAtMost: ratio(q.setBps, q.rateBps),
		Terms: []Term{requires("below-rate", degree(used(q), .88, .75)).by(q.setFact()),
			requires("packets-wait", degree(q.waited, .6, .9)), cores},
		Text: fmt.Sprintf("the shaper at %s passes %s of the %s that it is set to: %s", q.place(),
			mbps(q.rateBps), mbps(q.setBps), because),
		Facts: append(factList{q.setFact()}, o.heldFacts(q)...)}
}
