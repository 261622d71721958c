package diagnosis

import "github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"

// sendBuffer describes a send buffer that is smaller than the RTT requires.
var sendBuffer = rule(SendBuffer, `
	label: the send buffer is too small
	means: the send buffer limits TCP for at least 30 % of the time; or the send buffer is 128 KiB \
		or smaller, and the data in flight fills most of it
	traits: ends to-tester
	explains: at-capacity
	kind: window
	planted: send_buffer socket_buffer
	linux: let the sender autotune up to a larger buffer
		$ sysctl -w net.ipv4.tcp_wmem='4096 65536 33554432'
		risk: each connection may use that much memory
	any: leave the buffer size to the kernel: do not set SO_SNDBUF
`, func(o *Observation) Candidate {
	s := need(tcpTimes(o))
	sender, _ := o.Ends()
	send, _ := o.buffers()
	bytes, rtt := o.inFlight()
	full := degree(s.sndbuf, .03, .3)
	set := 0.0 // if its size is not set, the buffer grows with the data in flight
	if s.sndbuf > .02 {
		set = send
	}

	var further factList
	if send > 0 {
		// The kernel also charges its own structures to the buffer, so about half of the buffer is
		// payload.
		full = max(full, min(degree(bytes/send, .08, .3), degree(send, 256<<10, 64<<10)))
		further = factList{fact("sndbuf_bytes", sender, "socket", send, "the send buffer was %.0f kB",
			send/1024),
			flightFact(sender, bytes, rtt)}
	}

	return place{sender, "send buffer"}.candidate(requires("full-buffer", full).by(
		seen(metrics.SndbufLimited, s.sndbuf, "the send buffer limited TCP for %h of the time")),
		contradicts("receive-window", s.rwnd, .2, .6),
		o.waitsElsewhere(set)).
		facts(further...).
		text("the send buffer on the %s is too small: %g kB in TCP's RTT of %n", sender, bytes/1e3, rtt)
}, streamSteps(1, "each connection has its own buffer: twice as many carry twice as much"))
