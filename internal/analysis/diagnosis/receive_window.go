package diagnosis

// receiveWindow describes a receive window that is too small for the RTT.
var receiveWindow = rule(ReceiveWindow, `
	label: the receive window is too small for the RTT
	means: the receive window limits TCP for at least 40 % of the time, and the receiver rarely \
		closes it, so it reads fast enough
	traits: ends to-tester
	explains: at-capacity
	kind: window
	planted: receive_buffer socket_buffer
	linux: let the receiver autotune up to a larger buffer
		$ sysctl -w net.ipv4.tcp_rmem='4096 131072 33554432'
		risk: each connection may use that much memory
		when: window at ceiling
	any: let TCP's window scale option through: without it no window exceeds 64 kB
		when: window unscaled
	any: leave the buffer size to the kernel: do not set SO_RCVBUF
`, func(o *Observation) Candidate {
	s := need(tcpTimes(o))
	_, receiver := o.Ends()
	bytes, rtt := o.inFlight()
	_, receive := o.buffers()
	hz, closed, ok := o.zeroWindows()
	at := place{receiver, "receive buffer"}
	j := at.candidate(requires("window-limited", s.rwnd, .1, .5).by(rwndFact(s)),
		contradicts("zero-windows", hz, 5, 25), o.waitsElsewhere(receive)).
		facts(flightFact(receiver, bytes, rtt)).
		text("the receive window on the %s is too small: %g kB in TCP's RTT of %n", receiver, bytes/1e3,
			rtt)
	if ok {
		j = j.facts(closed)
	}

	if receive > 0 {
		j = j.facts(fact("rcvbuf_bytes", receiver, "socket", receive, "the receive buffer was %.0f kB",
			receive/1024))
	}

	return j
}, streamSteps(1, "each connection has its own window: twice as many carry twice as much"))

// waitsElsewhere returns a term that contradicts an end's buffer as the limit if most of the RTT is queueing
// delay: without that delay, the buffer would suffice. The term is weaker if the buffer was set to a small
// size.
func (o *Observation) waitsElsewhere(buffer float64) Term {
	_, rtt := o.inFlight()
	d, _ := o.addedDelay()
	elsewhere := yes(d.tcp > 3e6) * degree(ratio(d.tcp, rtt), .4, .8)
	if buffer > 0 {
		elsewhere *= .2 + .8*degree(buffer, 64<<10, 256<<10)
	}

	return contradicts("waits-elsewhere", elsewhere)
}
