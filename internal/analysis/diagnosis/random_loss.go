package diagnosis

import (
	"fmt"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// LossIsOf names a cause, which was found elsewhere on the same path, of what was taken for random loss.
func (d *Diagnosis) LossIsOf(c Cause, where string) {
	if !d.Named() || d.Class != RandomLoss {
		return
	}
	e := evidence.Evidence{Text: where + ": " + c.Text}
	c.Facts = append(slices.Clone(d.Causes[0].Facts[:1]), e)
	d.Causes[0], d.Class, d.Text, d.Confidence = c, c.Class, c.Text, c.Confidence
	d.Excluded = append(d.Excluded, Exclusion{RandomLoss, e})
}

// randomLoss is packets that are lost whatever the rate.
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
			lost := ramp(loss, .001, .004, -4, 1.5)
			score := lost
			idle, _ := o.idle(metrics.ProbeLossIdle)
			loaded, _ := o.Metric(metrics.ProbeLoss)
			if loaded+idle > 0 {
				score += ramp(loaded+idle, 0, .01, 0, 1)
				facts = append(facts, fact(metrics.ProbeLoss, "", "", loaded, unit.Percent(loaded)+
					" of the probes were lost, "+unit.Percent(idle)+" on the idle path"))
			}
			if !o.FlatOut() && score > 0 {
				score++ // at a rate below what the path carries
			}
			if probes, tcp, least, ok := o.addedDelay(); ok {
				score += ramp(max(probes, min(tcp, probes+5e6)), 8e6, 30e6, .3, -2)
				facts = append(facts, delayFact(least, probes, "queueing added "+unit.Nanoseconds(probes)))
			}
			if bursts, _ := o.outages(); bursts > 1 {
				score -= 6 // see unstable
			}
			if l := o.Trial.Loaded; l != nil && loaded == 0 {
				score -= ramp(loss*float64(len(l.RTT)), 4, 8, 0, 4) // so many probes would be lost, too
			}
			score += o.trickle() - o.windowed()
			j := Judgement{Element: "path", GainAtMost: o.gainToTester()}
			q, why := o.losing(func(q queue) bool { return q.holds() < .03 })
			in, _ := o.queues(true)
			policed := 0.0
			for _, one := range in {
				policed += one.lost()
			}
			score -= ramp(policed, .0005, .003, 0, 5)
			switch {
			case why == "" && q.kind == "netem" && !q.full && q.lost() > loss/3:
				// A queue that is made to lose packets, as links do.
				score += 2
				j.Node, j.Element = q.node, q.port
			case why == "" && q.lost() > loss/3:
				score -= 3.5 // it overflows
			}
			if _, count, ok := o.resent(); ok && count > 0 {
				early, unexplained := o.overflowedEarly()
				if unexplained < .2*count && early.early > early.drops {
					score -= 3.5 // what is sent again was lost before the window
				}
			}
			score -= ramp(o.diesInside(), -1, 1, 0, 5) // see ruleDrop
			unread, _ := o.unreadDatagrams()
			score -= ramp(unread, .2, .6, 0, 3.5)
			if h, _, why := o.held(); why == "" {
				score -= ramp(h.holds(), .05, .25, 0, 2.5)
			}
			if share, spurious, seen, ok := o.reorderSigns(); o.IsTCP() && ok {
				score -= ramp(spurious, .3, .7, 0, 2) + ramp(share, .3, .6, 0, 1) +
					ramp(seen, .0005, .005, 0, 3)
			}
			if uneven, ok := o.Metric(metrics.Consistency); ok && j.Node == "" {
				score -= ramp(uneven, .3, .6, 0, 1.5) // losses at random are spread evenly
			}
			j.Score, j.Facts = score, facts
			j.Text = "packets are lost at random: " + unit.Percent(loss) + " of them"
			if j.Node != "" {
				j.Text += " at " + q.place()
				j.Facts = append(j.Facts, fact("drops", q.node, q.port, q.drops, fmt.Sprintf("%.0f packets "+
					"were dropped there", q.drops)))
			}
			return j.weighed(lost)
		},
		Remedies: []Remedy{{System: "linux", Do: "check the link: cable, optics, Wi-Fi, duplex",
			Commands: []string{
				"ethtool -S DEV | grep -iE 'err|drop|crc'", "ip -s -s link show dev DEV"}},
			{System: "linux", Do: "use a congestion control that tolerates random loss", Commands: []string{
				"sysctl -w net.ipv4.tcp_congestion_control=bbr"}, Risk: "it takes more from other flows"}}}
}
