package diagnosis

import "github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"

// crossTraffic describes other traffic in the queue that limits the load.
var crossTraffic = rule("cross-traffic", `
	label: other traffic uses part of the bottleneck's rate
	means: a queue throttles, and more than 10 % of what it sends does not belong to the load
	any: find the source of the other traffic; then share the rate fairly, or measure without it
		$ tcpdump -n -c 200 -i DEV
		$ conntrack -L
`, func(o *Observation) Candidate {
	q := need(o.held())
	got, ok := o.Metric(metrics.Goodput)
	segment := o.load().PacketSize
	if o.IsTCP() {
		segment = o.mss()
	}

	others := 0.0 // the port's rate without the load, its headers and its retransmissions; 0 if unknown
	if ok && segment > 0 && o.tunnel() == "" && o.Traffic.ShortFlows == nil {
		const headers = 100 // Ethernet, IPv6 and TCP with options, in bytes
		again, _ := o.resent()
		others = q.rateBps - got*(1+headers/float64(segment))/(1-min(again, .5))
		if !o.IsTCP() { // datagrams that were sent before the window are the load's, but no goodput
			others -= q.rateBps * o.waitedIn(q) / 1e9 / o.Window.Seconds()
		}

		others = max(others, 0)
	}

	share := ratio(others, q.rateBps)
	return o.holding(q, requires("other-traffic", share, .08, .25).by(
		q.fact("others_bps", others, "%h of what the port sent is other traffic", share)), o.throttles(q)).
		gain(1/max(1-share, .1)).
		text("%b of the %b that leave %s are not the load's", others, q.rateBps, q)
})
