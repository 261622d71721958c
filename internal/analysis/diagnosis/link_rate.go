package diagnosis

import (
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
)

// linkRate describes a saturated link.
var linkRate = rule(LinkRate, `
	label: the link is saturated
	means: the load reaches 95 % of the path's stated or detected rate; or a FIFO throttles at least \
		one packet in four and sends at its configured rate
	traits: ends to-tester
	explains: at-capacity
	kind: rate
	planted: link_rate queue shape
	any: use a faster link; to keep the queue of this one short, shape to a few per cent below its \
		rate
		risk: a shaper costs CPU time
		when: not rate is set
	linux: raise the rate of the queue if the link behind it can carry more
		$ tc -s qdisc show
		$ tc -s class show dev DEV
		risk: above the link rate, delay grows
		when: rate is set
`, func(o *Observation) Candidate {
	q, why := o.held()
	got := o.goodput()
	share := ratio(got, o.Line.Value)
	// A policer drops packets, and a link queues them.
	polices := strings.HasPrefix(o.Line.Kind, string(factor.Policer))
	switch {
	case share > 0 && !polices && (why != "" || q.holds() < .03):
		return place{Element: o.Line.Kind}.candidate(requires("throttles", share, .8, .95).by(
			against(seen(metrics.Goodput, got, "%h of the payload that %s can carry arrived", share,
				o.Line.Kind), o.Line.Value))).
			gain(max(1/max(share, .1), 1)).
			text("the link is saturated: %b of the %b of payload that it can carry", got, o.Line.Value)
	case why != "":
		return o.flat(why)
	}

	return o.holding(q, o.throttles(q), contradicts("shaper", yes(q.managed || q.owned))).
		text("the link at %s is saturated at %b", q, q.rateBps)
})

// flat checks for a rate limit with the measurements of the two ends only: delay but little loss, and an even
// rate.
func (o *Observation) flat(why string) Candidate {
	uneven, ok := o.Metric(metrics.Consistency)
	d, timed := o.addedDelay()
	needs(ok && timed, why)
	return wholePath.candidate(contradicts("uneven", uneven, .03, .2).by(
		seen(metrics.Consistency, uneven, "throughput varied by %h")),
		requires("throttles", max(d.probes, d.tcp), 2e6, 15e6).by(
			d.fact("queueing added %n to the probe RTT", d.probes))).
		text("a link or shaper on the path, at %b of payload", o.goodput())
}
