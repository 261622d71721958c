package diagnosis

import "github.com/chokepoint-lab/chokepoint/internal/factor"

// belowLimit is the rate of a load, as a share of the limiting rate, at which the queue in front of the limit
// drains.
const belowLimit = .8

// belowNotice is the largest added RTT in ns whose place is not reported if the limit is unknown.
const belowNotice = 5e6

// bufferbloat describes a queue in which packets wait too long, although the rate is fine.
var bufferbloat = rule(Bufferbloat, `
	label: an oversized queue adds too much delay
	means: the median RTT under load is at least 55 ms above the minimum RTT, or at least 40 ms if \
		the packets wait in a rate-limited FIFO that drops nothing
	traits: ends delay any-rate
	linux: keep the queue short with fq_codel or CAKE, under a shaper at the link rate
		$ tc qdisc replace dev DEV root cake bandwidth RATE
		risk: a shaper costs CPU time
		plan: queue=fq_codel
	openwrt: enable SQM
		$ uci set sqm.@queue[0].enabled=1
		$ uci commit sqm
		$ service sqm restart
		risk: a shaper costs CPU time; flow offload bypasses it
	routeros: set the queue type to fq-codel or cake
		$ /queue type add name=fq kind=fq-codel
		risk: FastTrack bypasses queues
	freebsd: use an fq_codel scheduler
		$ dnctl sched 1 config pipe 1 type fq_codel
`, func(o *Observation) Candidate {
	d, ok := o.addedDelay()
	needs(ok, "the RTT under load is not known")
	added := d.probes
	if o.IsTCP() && d.tcp > 0 {
		added = min(added, max(d.tcp, added/2))
	}

	j := wholePath.candidate().
		text("a queue on the path is oversized: packets wait %n", added)
	lossless := 0.0
	q, why := o.held()
	if why == "" && o.throttles(q).Met > .4 {
		if q.drops == 0 && !q.managed {
			lossless = degree(added, 30e6, 50e6) // a link's own queue would be full by now
		}

		j = j.at(q.place).facts(o.heldFacts(q)[0]).
			text("the queue at %s is oversized: packets wait %n at %b, about %.2g kB", q, added,
				q.rateBps, added/1e9*q.rateBps/8/1e3)
	}

	l := o.Ledger()
	a, _, known := l.waits()
	switch {
	case known:
		j.Elsewhere = say("packets wait for %n at the %s's %s port, and what holds them there is not "+
			"known", a.WaitedNs, a.Node, a.Element)
		if j.Node == "" {
			j = j.at(place{a.Node, a.Element})
			j.Text += say(" at the %s's %s port", a.Node, a.Element)
		}
	case l != nil && l.WaitedWhere != "" && *l.AddedNs >= belowNotice:
		j.Elsewhere = say("packets spend %n %s, and in no queue that is known", *l.AddedNs-l.WaitedNs,
			l.WaitedWhere)
		_, j.ElsewhereNode = o.busyCore()
	}

	return j.with(requires("delay", added, 30e6, 70e6).by(
		d.fact("the median probe RTT was %n under load, against a minimum of %n", d.lowest+d.probes,
			d.lowest)),
		supports("lossless-fifo", lossless))
}, func(o *Observation) Experiment {
	paced := factor.Pacing
	if !o.IsTCP() {
		paced = factor.Rate
	}
	return removing(paced, say("%.0fk", o.goodput()*belowLimit/1000),
		"just below the limit nothing queues: if a queue is what delays, the delay falls")(o)
})
