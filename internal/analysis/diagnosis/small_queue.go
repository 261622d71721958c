package diagnosis

import (
	"fmt"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// smallQueue is a queue that drops bursts while neither rate nor CPU is at its limit.
func smallQueue() Rule {
	return Rule{Class: SmallQueue, Label: "a queue is too small", Means: "a FIFO drops at least 0.05 % " +
		"of its packets without throttling, and queueing adds little delay",
		Judge: func(o *Observation) Judgement {
			q, why := o.losing(func(q queue) bool { return !q.managed && q.kind != "netem" })
			if why != "" {
				return missing(why)
			}
			if q.drops == 0 {
				return Judgement{Score: absent, Facts: []evidence.Evidence{fact("drops", "", "", 0,
					"no FIFO on the path dropped a packet")}}
			}
			score := ramp(q.lost(), .0002, .0015, -3, 3) + ramp(q.overlimits, .02, .2, 0, -5) + o.wants()
			if q.kind != "" {
				score += .8
			}
			facts := []evidence.Evidence{fact("drops", q.node, q.port, q.drops, fmt.Sprintf("the queue at "+
				"%s dropped %s of its packets", q.place(), unit.Percent(q.lost())))}
			if probes, tcp, least, ok := o.addedDelay(); ok {
				score += ramp(max(probes, min(tcp, probes+5e6)), 5e6, 25e6, .5, -3)
				facts = append(facts, against(fact("rtt_loaded_p50_ns", "", "", least+probes, "queueing "+
					"added only "+
					milliseconds(probes)), least))
			}
			if s, why := o.systemOf(); why == "" {
				facts = append(facts, s.coreFact())
			}
			return Judgement{Score: score, Node: q.node, Element: q.port, Facts: facts,
				GainAtMost: o.gainToTester(),
				Text: fmt.Sprintf("the queue at %s is too small: it drops %s of the packets and adds "+
					"no delay",
					q.place(), unit.Percent(q.lost()))}
		},
		Experiments: func(o *Observation, j Judgement) []Experiment {
			return append(rateDoses(o, j), Experiment{Class: j.Class, Factor: "queue@" + j.Node + "." +
				j.Element,
				Doses: []string{"pfifo limit 1000", "fq_codel"}, From: "router", Expect: 1,
				Why: "a longer queue absorbs bursts: goodput rises"})
		},
		Remedies: []Remedy{
			{System: "linux", Do: "use a longer queue, preferably one with AQM", Commands: []string{
				"tc qdisc replace dev DEV root fq_codel"}, Risk: "a long FIFO adds delay", Factor: "queue",
				Level: "fq_codel"},
			{System: "openwrt", Do: "use the default qdisc", Commands: []string{
				"tc qdisc replace dev DEV root fq_codel"}},
			{System: "routeros", Do: "use a longer queue type on the interface", Commands: []string{
				"/queue interface set INTERFACE queue=multi-queue-ethernet-default"},
				Risk: "more latency under load"},
		}}
}
