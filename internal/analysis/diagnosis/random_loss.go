package diagnosis

import (
	"fmt"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// LossIsOf names a cause, found elsewhere on the same path, for what was taken for random loss.
func (d *Diagnosis) LossIsOf(c Cause, where string) {
	if !d.Named() || d.Class != RandomLoss {
		return
	}
	e := evidence.Evidence{Text: where + ": " + c.Text}
	c.Facts = append(slices.Clone(d.Causes[0].Facts[:1]), e)
	d.Causes[0], d.Class, d.Text, d.Confidence = c, c.Class, c.Text, c.Confidence
	d.Excluded = append(d.Excluded, Exclusion{RandomLoss, e})
}

// randomLoss returns the rule for packets that are lost whatever the rate.
func randomLoss() Rule {
	return Rule{Class: RandomLoss, Wasteful: true,
		Label: "packets are lost at random", Ends: true,
		Means: "at least 0.15 % of the packets are lost although no rate, queue or policer explains it, " +
			"and queueing adds little delay; probes are lost, too",
		Judge: func(o *Observation) Judgement {
			loss, name, ok := o.lossOf()
			if !ok {
				return missing("nothing counted lost packets")
			}
			facts := factList{lossFact(name, loss)}
			lossy := degree(loss, .001, .004)
			idle, _ := o.idle(metrics.ProbeLossIdle)
			loaded, _ := o.Metric(metrics.ProbeLoss)
			if loaded+idle > 0 {
				facts = append(facts, fact(metrics.ProbeLoss, "", "", loaded, unit.Percent(loaded)+
					" of the probes were lost, "+unit.Percent(idle)+" on the idle path"))
			}
			probes, tcp, least, ok := o.addedDelay()
			if ok {
				facts = append(facts, delayFact(least, probes, "queueing added "+unit.Nanoseconds(probes)))
			}
			arrive := 0.0
			if l := o.Trial.Loaded; l != nil && loaded == 0 {
				arrive = degree(loss*float64(len(l.RTT)), 4, 8) // that many probes would be lost, too
			}
			j := Judgement{Element: "path", GainAtMost: o.gainToTester(),
				Text: "packets are lost at random: " + unit.Percent(loss) + " of them"}
			q, _ := o.losing(func(q queue) bool { return q.holds() < .03 })
			drops := q.lost() > loss/3
			link := drops && q.kind == "netem" && !q.full // it is set to lose packets, as links do
			if link {
				j.Node, j.Element = q.node, q.port
				j.Text += " at " + q.place()
				facts = append(facts, fact("drops", q.node, q.port, q.drops, fmt.Sprintf("%.0f packets "+
					"were dropped there", q.drops)))
			}
			if l := o.Ledger(); l != nil && !link && len(l.MissedPackets) > 0 {
				if a, ok := deadliest(l.Data); ok && a.DiedPackets() > l.MissedPackets[1]/2 {
					j.Node, j.Element = a.Node, a.Element
					j.Text += " at the " + a.Node
				}
			}
			in, _ := o.queues(true)
			policed := 0.0
			for _, one := range in {
				policed += one.lost()
			}
			_, spurious, seen, ok := o.reorderSigns()
			if !o.IsTCP() || !ok {
				spurious, seen = 0, 0
			}
			bursts, _ := o.outages()
			_, again, _ := o.resent()
			early, unexplained := o.overflowedEarly()
			held, _, _ := o.held()
			j.Facts = facts
			j.Terms = []Term{requires("lossy", lossy).by(facts[0]),
				supports("probes-lost", degree(loaded+idle, 0, .01)),
				supports("below-capacity", yes(!o.FlatOut() && lossy > .5)),
				supports("lossy-link", yes(link)), contradicts("overflows", yes(drops && !link)),
				contradicts("queueing", degree(max(probes, min(tcp, probes+5e6)), 8e6, 30e6)),
				contradicts("outages", yes(bursts > 1)), // see unstable
				contradicts("probes-arrive", arrive), contradicts("policed", degree(policed, .0005, .003)),
				contradicts("lost-before", yes(unexplained < .2*again && early.early > early.drops)),
				contradicts("dies-inside", met(o.diesInside()...)), // see ruleDrop
				contradicts("throttles", degree(held.holds(), .05, .25)),
				contradicts("spurious", degree(spurious, .3, .7)),
				contradicts("seen-reordered", degree(seen, .0005, .005))}
			return j
		},
		Remedies: []Remedy{{System: "linux", Do: "check the link: cable, optics, Wi-Fi, duplex",
			Commands: []string{
				"ethtool -S DEV | grep -iE 'err|drop|crc'", "ip -s -s link show dev DEV"}},
			{System: "linux", Do: "use a congestion control that tolerates random loss", Commands: []string{
				"sysctl -w net.ipv4.tcp_congestion_control=bbr"}, Risk: "it takes more from other flows"}}}
}
