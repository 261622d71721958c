package diagnosis

import "github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"

// slowReader describes an application that reads its data too slowly.
var slowReader = rule(SlowReader, `
	label: the receiving application is slow
	means: the receive window limits TCP for at least 40 % of the time because unread data fills the \
		receive buffer: the receiver closes the window at least ten times per second, or the buffer \
		is far larger than the data in flight; a steady rate makes this cause more likely
	traits: ends to-tester
	explains: at-capacity
	planted: slow_reader
	any: make the application read faster: read larger blocks, in a thread of its own, and do no \
		other work between reads
`, func(o *Observation) Candidate {
	s := need(tcpTimes(o))
	_, receiver := o.Ends()
	closes, further := o.unread()
	return place{receiver, "application"}.candidate(requires("receive-window", s.rwnd, .1, .5).by(
		rwndFact(s)),
		requires("full-buffer", closes),
		supports("reads-evenly", o.readsEvenly().Met)).
		facts(further...).
		text("the application on the %s reads only %b: its receive buffer is full", receiver, o.goodput())
}, streamSteps(0, "a slow application reads no faster from several connections"))

// unread returns the certainty, from 0 to 1, that unread data fills the receive buffer, and the facts.
func (o *Observation) unread() (full float64, seen factList) {
	_, receiver := o.Ends()
	hz, closed, ok := o.zeroWindows()
	full = degree(hz, 2, 15)
	if ok {
		seen = factList{closed}
	}

	_, receive := o.buffers()
	if receive == 0 {
		return full, seen
	}

	// If the window limits TCP although the buffer has room for much more than the data in flight, unread
	// data fills the buffer.
	bytes, _ := o.inFlight()
	left := degree(bytes/receive, .15, .03)
	if _, use, ok := o.threadUse(receiver); ok {
		left = min(left, degree(use, .35, .15)) // a busy reader reads as fast as it can
	}

	return max(full, left), append(seen, against(fact("bytes_in_flight", receiver, "socket", bytes,
		"%g kB were in flight, the receive buffer was %.0f kB", bytes/1e3, receive/1024), receive))
}

// readsEvenly returns a term that contradicts a lack of CPU time: a reader that lets its receive buffer fill
// up but reads at an even rate paces itself.
func (o *Observation) readsEvenly() Term {
	s, why := tcpTimes(o)
	uneven, known := o.Metric(metrics.Consistency)
	if why != "" || !known {
		return contradicts("reads-evenly", 0)
	}

	full, _ := o.unread()
	return contradicts("reads-evenly", min(degree(s.rwnd, .1, .5), full, degree(uneven, .1, .03))).by(
		rwndFact(s))
}
