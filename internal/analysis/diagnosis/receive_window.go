package diagnosis

import (
	"fmt"

	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// receiveWindow is a window that is too small for the round trip.
func receiveWindow() Rule {
	return Rule{Class: ReceiveWindow, Label: "the receive window is too small for the RTT", Ends: true,
		Means: "the receive window limits TCP for at least 40 % of the time while the receiver keeps up: " +
			"it rarely closes its window",
		Judge: given((*Observation).tcpShares, func(o *Observation, s tcpShares) Judgement {
			_, receiver := o.Ends()
			bytes, rtt := o.inFlight()
			facts := factList{rwndFact(s), flightFact(receiver, bytes, rtt)}
			score := ramp(s.rwnd, .1, .5, -5, 2) + o.wants()
			if hz, e, ok := o.zeroWindows(); ok {
				score += ramp(hz, 5, 25, 2, -2)
				facts = append(facts, e)
			}
			elsewhere := 0.0
			if _, waits, _, ok := o.addedDelay(); ok && waits > 3e6 {
				// Packets that wait elsewhere take long: the window would do for the path's own round trip.
				elsewhere = ramp(waits/rtt, .4, .8, 0, 5)
			}
			if _, receive := o.buffers(); receive > 0 {
				elsewhere *= ramp(receive, 64<<10, 256<<10, .2, 1) // a small buffer was set
				score += ramp(receive, 128<<10, 512<<10, .8, -1)
				// A window grows with the buffer: one with room for many times as much need not be small.
				score -= ramp(receive/max(bytes, 1), 8, 40, 0, 4)
				facts = append(facts, fact("rcvbuf_bytes", receiver, "socket", receive, fmt.Sprintf(
					"the receive buffer was %.0f kB", receive/1024)))
			}
			score -= elsewhere + ramp(o.atReceiver(), .4, .8, 0, 3)
			return Judgement{Score: score, Node: receiver, Element: "receive buffer", Facts: facts,
				GainAtMost: o.gainToTester(), Text: fmt.Sprintf("the receive window on the %s is too small: "+
					"%s kB per RTT of %s", receiver, unit.Significant(bytes/1e3, 3), unit.Nanoseconds(rtt)),
			}.weighed(ramp(s.rwnd, .1, .5, -5, 2))
		}),
		Experiments: streamDoses(1, "each connection has its own window: twice as many carry twice as "+
			"much"),
		Remedies: []Remedy{{System: "linux", Do: "let the receiver autotune up to a larger buffer",
			Commands: []string{"sysctl -w net.ipv4.tcp_rmem='4096 131072 33554432'"},
			Risk:     "each connection may use that much memory", When: (*Observation).windowAtCeiling},
			{Do: "let TCP's window scale option through: without it no window exceeds 64 kB",
				When: (*Observation).windowUnscaled},
			{Do: "leave the buffer size to the kernel: do not set SO_RCVBUF"}}}
}
