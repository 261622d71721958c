package diagnosis

import (
	"fmt"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// slowReader is an application that takes its data too slowly.
func slowReader() Rule {
	return Rule{Class: SlowReader, Label: "the receiving application is slow", Ends: true,
		Means: "the receive window limits TCP for at least 40 % of the time, and the receiver closes it " +
			"at least ten times per second, or its buffer has room for far more than is in flight: it is " +
			"full of data that was not read",
		Judge: given((*Observation).tcpShares, func(o *Observation, s tcpShares) Judgement {
			_, receiver := o.Ends()
			facts := factList{rwndFact(s)}
			window := ramp(s.rwnd, .1, .5, -5, 2)
			score := window + o.wants() + o.trickle()
			uneven, known := o.Metric(metrics.Consistency)
			if known {
				score += ramp(uneven, .25, .6, 0, -1.5)
			}
			waits, _, _ := o.starved(receiver)
			score -= waits
			closes := -3.
			if hz, e, ok := o.zeroWindows(); ok {
				closes = ramp(hz, 2, 15, -3, 3)
				facts = append(facts, e)
			}
			if _, receive := o.buffers(); receive > 0 {
				// A window that has room for much more than is in flight, and yet limits, is filled with data
				// that was not read.
				bytes, _ := o.inFlight()
				unread := max(ramp(bytes/receive, .03, .15, 2, -3), ramp(o.atReceiver(), .5, .9, -3, 2))
				if _, use, ok := o.threadUse(receiver); ok {
					unread -= ramp(use, .15, .35, 0, 5) // it reads as fast as it gets to run
				}
				closes = max(closes, unread)
				facts = append(facts, against(fact("bytes_in_flight", receiver, "socket", bytes, fmt.Sprintf(
					"%s kB were in flight, the receive buffer was %.0f kB", unit.Significant(bytes/1e3, 3),
					receive/1024)), receive))
			}
			score += closes
			got, _ := o.Metric(metrics.Goodput)
			return Judgement{Score: score, Node: receiver, Element: "application", Facts: facts,
				GainAtMost: o.gainToTester(), Text: fmt.Sprintf("the application on the %s reads only "+
					"%s: its receive buffer is full", receiver, mbps(got))}.weighed(window)
		}),
		Experiments: streamDoses(0, "a slow application reads no faster from several "+
			"connections"),
		Remedies: []Remedy{{Do: "make the application read faster: larger reads, its own thread, no " +
			"work between reads"}}}
}
