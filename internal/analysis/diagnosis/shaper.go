package diagnosis

// shaper describes a queue that limits the rate.
var shaper = rule(Shaper, `
	label: a shaper limits the rate
	means: a queue with classes, or one with AQM, throttles at least one packet in four; it \
		sends at its configured rate or, if that is unknown, packets wait in it
	traits: ends to-tester
	explains: at-capacity
	kind: rate
	planted: shape link_rate queue
	linux: raise the shaper's rate if the link behind it can carry more
		$ tc -s qdisc show
		$ tc -s class show dev DEV
		risk: above the link rate the link's own queue fills, and delay grows
	openwrt: raise the SQM rate
		$ uci set sqm.@queue[0].upload=KBITS
		$ uci commit sqm
		$ service sqm restart
		risk: above the link rate, delay grows
	routeros: raise the queue's max-limit
		$ /queue simple print stats
		risk: above the link rate, delay grows
	freebsd: raise the pipe's bandwidth
		$ dnctl pipe show
		risk: above the link rate, delay grows
`, func(o *Observation) Candidate {
	q := need(o.held())
	return o.holding(q, o.throttles(q), requires("shaper", yes(q.managed || q.owned))).
		text("a shaper at %b on %s", q.rateBps, q)
})
