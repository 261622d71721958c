package diagnosis

import (
	"fmt"

	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// sendBuffer returns the rule for a send buffer that holds less than an RTT takes.
func sendBuffer() Rule {
	return Rule{Class: SendBuffer, Label: "the send buffer is too small", Ends: true,
		Means: "the send buffer limits TCP for at least 30 % of the time; or the data in flight fills most " +
			"of a buffer of 128 KiB or less",
		Judge: given((*Observation).tcpShares, func(o *Observation, s tcpShares) Judgement {
			sender, _ := o.Ends()
			send, _ := o.buffers()
			bytes, rtt := o.inFlight()
			full, small := degree(s.sndbuf, .03, .3), 0.0
			facts := factList{fact("tcp_sndbuf_limited_ratio", "", "", s.sndbuf,
				"the send buffer limited TCP for "+unit.Percent(s.sndbuf)+" of the time")}
			set := 0.0 // the kernel lets a buffer grow with what is in flight
			if s.sndbuf > .02 {
				set = send
			}
			if send > 0 {
				// The kernel counts its own bookkeeping: about half of a buffer is payload.
				full = max(full, min(degree(bytes/send, .08, .3), degree(send, 256<<10, 64<<10)))
				small = degree(send, 512<<10, 128<<10)
				facts = append(facts, fact("sndbuf_bytes", sender, "socket", send, fmt.Sprintf(
					"the send buffer was %.0f kB", send/1024)), flightFact(sender, bytes, rtt))
			}
			return Judgement{Node: sender, Element: "send buffer", Facts: facts,
				Terms: []Term{requires("full-buffer", full).by(facts[0]), supports("small-buffer", small),
					supports("pauses", yes(send > 0 && (s.busy < .95 || s.sndbuf > .02))),
					contradicts("receive-window", degree(s.rwnd, .2, .6)), o.waitsElsewhere(set)},
				GainAtMost: o.gainToTester(), Text: fmt.Sprintf("the send buffer on the %s is too small: "+
					"%s kB per RTT of %s", sender, unit.Significant(bytes/1e3, 3), unit.Nanoseconds(rtt))}
		}),
		Experiments: streamDoses(1, "each connection has its own buffer: twice as many carry twice as "+
			"much"),
		Remedies: []Remedy{{System: "linux", Do: "let the sender autotune up to a larger buffer",
			Commands: []string{"sysctl -w net.ipv4.tcp_wmem='4096 65536 33554432'"},
			Risk:     "each connection may use that much memory"},
			{Do: "leave the buffer size to the kernel: do not set SO_SNDBUF"}}}
}
