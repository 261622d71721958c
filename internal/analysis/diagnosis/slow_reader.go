package diagnosis

// slowReader describes an application that reads its data too slowly.
var slowReader = Rule{
	Class:    SlowReader,
	Ends:     true,
	ToTester: true,
	Text: `
		label: the receiving application is slow
		means: the receive window limits TCP for at least 40 % of the time, and the receiver closes \
			it at least ten times per second, or its buffer has room for far more than is in flight: \
			it is full of data that was not read
		any: make the application read faster: larger reads, its own thread, no work between reads
	`,
	Check: given(tcpTimes, func(o *Observation, s tcpShares) Candidate {
		_, receiver := o.Ends()
		hz, closed, ok := o.zeroWindows()
		closes := degree(hz, 2, 15)
		var further factList
		if ok {
			further = factList{closed}
		}

		_, receive := o.buffers()
		if receive > 0 {
			// A window that limits although it has room for much more than is in flight is full of unread
			// data.
			bytes, _ := o.inFlight()
			unread := degree(bytes/receive, .15, .03)
			if _, use, ok := o.threadUse(receiver); ok {
				unread = min(unread, degree(use, .35, .15)) // it reads as fast as it can run
			}

			closes = max(closes, unread)
			further = append(further, against(fact("bytes_in_flight", receiver, "socket", bytes,
				"%g kB were in flight, the receive buffer was %.0f kB", bytes/1e3, receive/1024), receive))
		}

		return place{receiver, "application"}.candidate(requires("receive-window", s.rwnd, .1, .5).by(
			rwndFact(s)),
			requires("full-buffer", closes)).
			facts(further...).
			text("the application on the %s reads only %b: its receive buffer is full", receiver, o.goodput())
	}),
	Experiments: streamSteps(0, "a slow application reads no faster from several connections"),
}
