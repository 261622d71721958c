package diagnosis

import (
	"cmp"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
)

// healthy describes a load with a set rate that the path carried completely.
var healthy = rule(Healthy, `
	label: nothing limits this load
	means: a load with a set rate reaches 99 % of that rate, loses or retransmits less than 0.3 % of \
		its packets and less than 2 % of the probes, and adds less than 15 ms to the idle RTT (to \
		the minimum RTT if there is no idle RTT); or, of connections started at a set rate, 95 % \
		complete and less than 1 % fail
	traits: ends quiet any-rate
`, func(o *Observation) Candidate {
	rate := o.load().RateBps
	if o.load().ConnectionRate > 0 {
		return o.allConnections()
	}

	got, ok := o.Metric(metrics.Goodput)
	needs(ok, "no goodput was measured")
	if rate == 0 {
		return excluded()
	}

	loss, lossy, ok := o.lossOf()
	needs(ok, "packet loss is not known: "+cmp.Or(o.Metrics.Missing[lossy.Metric],
		"nothing counted lost packets"))
	d, ok := o.addedDelay()
	needs(ok, "the RTT under load is not known")
	if len(o.Metrics.RTTs["loaded"]) == 0 {
		d.probes = d.tcp
	}

	idle, known := o.idle(metrics.RTTIdle)
	if known {
		d.lowest, d.probes = idle, max(d.lowest+d.probes-idle, 0)
	}

	probes := o.value(metrics.ProbeLoss)
	share := got / rate
	words := "without loss"
	if loss >= .001 {
		words = say("with %h of loss", loss)
	}

	return candidate(requires("complete", share, .9, .99).by(
		against(seen(metrics.Goodput, got, "%h of the requested rate arrived", share), rate)),
		contradicts("loss", loss, .001, .005).by(lossy),
		contradicts("delay", d.probes, 10e6, 20e6).by(
			d.fact("the load added %n to an RTT of %n", d.probes, d.lowest)),
		contradicts("probe-loss", probes, .01, .03).by(
			seen(metrics.ProbeLoss, probes, "%h of the probes were lost")),
		o.lostWhenIdle()).
		text("nothing limits this load: it gets the rate it asks for, %s and with little delay", words)
})

// allConnections checks short flows that start at a set rate.
func (o *Observation) allConnections() Candidate {
	got, ok := o.Metric(metrics.FlowRate)
	needs(ok, "no connection was completed")
	share, failed := o.connected()
	return candidate(requires("complete", share, .8, .95).by(
		against(seen(metrics.FlowRate, got, "%h of the connections due in the window completed in it",
			share), o.load().ConnectionRate)),
		contradicts("loss", failed, .001, .01).by(
			seen(metrics.FlowFailed, failed, "%h of the connections failed")),
		o.lostWhenIdle()).
		text("nothing holds this load back: every connection completes at the requested rate")
}

// connected returns two shares of the flows that were due in the window: the flows that completed by its end,
// and the flows that failed. If flows start at random times, the number due varies.
func (o *Observation) connected() (done, failed float64) {
	flows := o.Traffic.ShortFlows
	if flows == nil || flows.Started == 0 {
		return 0, 0
	}
	return float64(flows.Completed) / float64(flows.Started), float64(flows.Failed) / float64(flows.Started)
}
