package diagnosis

import (
	"fmt"

	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// receiveWindow returns the rule for a window that is too small for the RTT.
func receiveWindow() Rule {
	return Rule{Class: ReceiveWindow, Label: "the receive window is too small for the RTT", Ends: true,
		Means: "the receive window limits TCP for at least 40 % of the time while the receiver keeps up: " +
			"it rarely closes its window",
		Judge: given((*Observation).tcpShares, func(o *Observation, s tcpShares) Judgement {
			_, receiver := o.Ends()
			bytes, rtt := o.inFlight()
			facts := factList{rwndFact(s), flightFact(receiver, bytes, rtt)}
			hz, e, ok := o.zeroWindows()
			if ok {
				facts = append(facts, e)
			}
			_, receive := o.buffers()
			small, roomy := 0.0, 0.0
			if receive > 0 {
				// A window grows with the buffer: with room for many times as much, it need not be small.
				small = degree(receive, 512<<10, 128<<10)
				roomy = yes(!o.windowUnscaled()) * degree(receive/max(bytes, 1), 8, 40)
				facts = append(facts, fact("rcvbuf_bytes", receiver, "socket", receive, fmt.Sprintf(
					"the receive buffer was %.0f kB", receive/1024)))
			}
			return Judgement{Node: receiver, Element: "receive buffer", Facts: facts,
				Terms: []Term{requires("window-limited", degree(s.rwnd, .1, .5)).by(facts[0]),
					contradicts("zero-windows", degree(hz, 5, 25)), supports("small-buffer", small),
					contradicts("roomy-buffer", roomy), o.waitsElsewhere(receive),
					contradicts("waits-at-receiver", degree(o.atReceiver(), .4, .8))},
				GainAtMost: o.gainToTester(), Text: fmt.Sprintf("the receive window on the %s is too small: "+
					"%s kB per RTT of %s", receiver, unit.Significant(bytes/1e3, 3), unit.Nanoseconds(rtt))}
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

// waitsElsewhere contradicts an end's buffer as the limit where packets wait long elsewhere, so that it would
// suffice for the path's own RTT; less so if a small one was set.
func (o *Observation) waitsElsewhere(buffer float64) Term {
	_, rtt := o.inFlight()
	_, waits, _, _ := o.addedDelay()
	elsewhere := yes(waits > 3e6) * degree(ratio(waits, rtt), .4, .8)
	if buffer > 0 {
		elsewhere *= .2 + .8*degree(buffer, 64<<10, 256<<10)
	}
	return contradicts("waits-elsewhere", elsewhere)
}
