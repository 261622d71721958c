package diagnosis

import (
	"fmt"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// slowReader returns the rule for an application that reads its data too slowly.
func slowReader() Rule {
	return Rule{Class: SlowReader, Label: "the receiving application is slow", Ends: true,
		Means: "the receive window limits TCP for at least 40 % of the time, and the receiver closes it " +
			"at least ten times per second, or its buffer has room for far more than is in flight: it is " +
			"full of data that was not read",
		Judge: given((*Observation).tcpShares, func(o *Observation, s tcpShares) Judgement {
			_, receiver := o.Ends()
			facts := factList{rwndFact(s)}
			uneven, _ := o.Metric(metrics.Consistency)
			waits, _, _ := o.starved(receiver)
			closes := 0.0
			if hz, e, ok := o.zeroWindows(); ok {
				closes = degree(hz, 2, 15)
				facts = append(facts, e)
			}
			if _, receive := o.buffers(); receive > 0 {
				// A window with room for much more than is in flight that still limits is filled with unread
				// data.
				bytes, _ := o.inFlight()
				unread := max(degree(bytes/receive, .15, .03), degree(o.atReceiver(), .5, .9))
				if _, use, ok := o.threadUse(receiver); ok {
					unread = min(unread, degree(use, .35, .15)) // it reads as fast as it can run
				}
				closes = max(closes, unread)
				facts = append(facts, against(fact("bytes_in_flight", receiver, "socket", bytes, fmt.Sprintf(
					"%s kB were in flight, the receive buffer was %.0f kB", unit.Significant(bytes/1e3, 3),
					receive/1024)), receive))
			}
			got, _ := o.Metric(metrics.Goodput)
			return Judgement{Node: receiver, Element: "application", Facts: facts,
				Terms: []Term{requires("receive-window", degree(s.rwnd, .1, .5)).by(facts[0]),
					requires("full-buffer", closes), contradicts("uneven", degree(uneven, .25, .6)),
					contradicts("waits-for-core", waits), o.stalled()},
				GainAtMost: o.gainToTester(), Text: fmt.Sprintf("the application on the %s reads only "+
					"%s: its receive buffer is full", receiver, mbps(got))}
		}),
		Experiments: streamDoses(0, "a slow application reads no faster from several "+
			"connections"),
		Remedies: []Remedy{{Do: "make the application read faster: larger reads, its own thread, no " +
			"work between reads"}}}
}
