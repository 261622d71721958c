package diagnosis

import (
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
)

// LossIsOf replaces the diagnosis of random loss with a cause that was found elsewhere on the same path.
func (d *Diagnosis) LossIsOf(c Cause, where string) {
	if !d.Named() || d.Class != RandomLoss {
		return
	}

	e := Fact{Text: where + ": " + c.Text}
	c.Facts = append(slices.Clone(d.Causes[0].Facts[:1]), e)
	d.Causes[0] = c
	d.Class = c.Class
	d.Text = c.Text
	d.Confidence = c.Confidence
	d.Excluded = append(d.Excluded, Exclusion{RandomLoss, e})
}

// randomLoss describes packets that are lost whatever the rate of the load is.
var randomLoss = rule(RandomLoss, `
	label: packets are lost at random
	means: at least 0.15 % of the packets are lost although no rate, queue or policer explains \
		it, and queueing adds little delay
	traits: ends wasteful to-tester any-rate
	kind: flow
	planted: loss
	linux: check the link: cable, optics, Wi-Fi, duplex
		$ ethtool -S DEV | grep -iE 'err|drop|crc'
		$ ip -s -s link show dev DEV
	linux: use a congestion control that tolerates random loss
		$ sysctl -w net.ipv4.tcp_congestion_control=bbr
		risk: it takes more from other flows
`, func(o *Observation) Candidate {
	loss, lost, ok := o.lossOf()
	needs(ok, "nothing counted lost packets")
	j := wholePath.candidate().text("packets are lost at random: %h of them", loss).facts(lost)
	idle, _ := o.idle(metrics.ProbeLossIdle)
	loaded := o.value(metrics.ProbeLoss)
	if loaded+idle > 0 {
		j = j.facts(seen(metrics.ProbeLoss, loaded, "%h of the probes were lost, %h on the idle path",
			loaded, idle))
	}

	d, ok := o.addedDelay()
	if ok {
		j = j.facts(d.fact("queueing added %n", d.probes))
	}

	arrive := 0.0
	if l := o.Loaded; l != nil && loaded == 0 {
		arrive = loss * float64(len(l.RTT)) // number of probes that would have been lost, too
	}

	q, _ := o.losing(func(q queue) bool { return q.holds() < .03 })
	drops := q.lost() > loss/3
	link := drops && q.kind == "netem" && !q.full // configured to lose packets, as real links do
	if link {
		j.Text += " at " + q.String()
		j = j.at(q.place).facts(q.fact("drops", q.drops, "%.0f packets were dropped there"))
	} else if l := o.Ledger(); l != nil && len(l.MissedPackets) > 0 {
		if a := greatest(l.Data, Account.DiedPackets); a.DiedPackets() > l.MissedPackets[1]/2 {
			j = j.at(place{a.Node, a.Element})
			j.Text += " at the " + a.Node
		}
	}

	_, spurious, reordered, ok := o.reorderSigns()
	if !o.IsTCP() || !ok {
		spurious, reordered = 0, 0
	}

	held, _ := o.held()
	return j.with(requires("lossy", loss, .001, .004).by(lost),
		supports("lossy-link", yes(link)), contradicts("overflows", yes(drops && !link)),
		contradicts("queueing", d.queueing(), 8e6, 30e6),
		contradicts("probes-arrive", arrive, 4, 8),
		contradicts("dies-inside", met(o.diesInside()...)), // see ruleDrop
		contradicts("throttles", held.holds(), .05, .25),
		contradicts("spurious", spurious, .3, .7), contradicts("seen-reordered", reordered, .0005, .005))
})
