package diagnosis

import (
	"fmt"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// sendBuffer is a buffer of the sender that holds less than a round trip takes.
func sendBuffer() Rule {
	return Rule{Class: SendBuffer, Label: "the send buffer is too small", Ends: true,
		Means: "the send buffer holds TCP back for 30 % of the time or more; or what is under way fills " +
			"most of a buffer of 128 KiB or less",
		Judge: func(o *Observation) Judgement {
			s, why := o.tcpShares()
			if why != "" {
				return missing(why)
			}
			sender, _ := o.Ends()
			send, _ := o.buffers()
			bytes, rtt := o.inFlight()
			score := ramp(s.sndbuf, .03, .3, -4, 3)
			facts := []evidence.Evidence{fact("tcp_sndbuf_limited_ratio", "", "", s.sndbuf,
				"the send buffer held TCP back for "+unit.Percent(s.sndbuf)+" of the window")}
			if send > 0 {
				// The kernel counts its own bookkeeping: about half of a buffer is payload.
				full := ramp(bytes/send, .08, .3, -3, 2) + ramp(send, 64<<10, 256<<10, 1.5, -6)
				if s.busy < .95 || s.sndbuf > .02 {
					full += .5
				}
				score = max(score, full) + ramp(send, 128<<10, 512<<10, 1, -1)
				facts = append(facts, fact("sndbuf_bytes", sender, "socket", send, fmt.Sprintf(
					"the send buffer had %.0f kB", send/1024)), fact("bytes_in_flight", sender, "socket",
					bytes,
					fmt.Sprintf("%s kB per flow were under way in a round trip of %s",
						unit.Significant(bytes/1e3, 3), milliseconds(rtt))))
			}
			score -= ramp(s.rwnd, .2, .6, 0, 4)
			return Judgement{Score: score + o.wants(), Node: sender, Element: "send buffer", Facts: facts,
				GainAtMost: o.gainToTester(), Text: fmt.Sprintf("the send buffer on the %s: %s kB per "+
					"round trip of %s", sender, unit.Significant(bytes/1e3, 3), milliseconds(rtt))}
		},
		Experiments: streamDoses(1, "each connection has a buffer of its own: twice as many carry twice as "+
			"much"),
		Remedies: []Remedy{{System: "linux", Do: "let the sender's kernel tune a larger buffer",
			Commands: []string{"sysctl -w net.ipv4.tcp_wmem='4096 65536 33554432'"},
			Risk:     "each connection may take so much memory"},
			{Do: "leave the buffer to the kernel: do not set SO_SNDBUF"}}}
}
