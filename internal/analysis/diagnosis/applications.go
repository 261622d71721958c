package diagnosis

import (
	"cmp"
	"fmt"
	"strconv"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// tcpShares are the shares of the window in which TCP had data, and in which an end held it back.
type tcpShares struct{ busy, rwnd, sndbuf float64 }

func (o *Observation) tcpShares() (s tcpShares, why string) {
	if !o.IsTCP() {
		return s, "the load is not TCP"
	}
	for name, v := range map[string]*float64{"tcp_busy_ratio": &s.busy, metrics.RwndLimited: &s.rwnd,
		"tcp_sndbuf_limited_ratio": &s.sndbuf} {
		got, ok := o.Metric(name)
		if !ok {
			return s, cmp.Or(o.Metrics.Missing[name], "the engine reports no TCP_INFO")
		}
		*v = got
	}
	return s, ""
}

// buffers are those of the sockets of the sender and of the receiver, as the kernel told their sizes; 0 = not
// known.
func (o *Observation) buffers() (send, receive float64) {
	sends, receives := "near", "far"
	switch o.load().Direction {
	case "down":
		sends, receives = receives, sends
	case "both":
		return 0, 0
	}
	read := func(key string) float64 {
		v, _ := strconv.ParseFloat(o.Trial.Traffic.Details[key], 64)
		return v
	}
	return read(sends + ".sndbuf_bytes"), read(receives + ".rcvbuf_bytes")
}

// inFlight is how much a flow had under way: its share of goodput × the round trip.
func (o *Observation) inFlight() (bytes, rtt float64) {
	got, _ := o.Metric(metrics.Goodput)
	rtt, _ = o.Metric("rtt_tcp_ns")
	return got / 8 * rtt / 1e9 / float64(max(len(o.Trial.Traffic.Flows), 1)), rtt
}

// zeroWindows are how often the receiver said that it takes nothing now, per second; ok is false where
// nothing counted it.
func (o *Observation) zeroWindows() (hz float64, ok bool) {
	_, receiver := o.Ends()
	n, ok := o.grew(receiver, "TcpExtTCPToZeroWindowAdv", "TcpExtTCPWantZeroWindowAdv")
	return o.perSecond(n), ok
}

func rwndFact(s tcpShares) evidence.Evidence {
	return fact(metrics.RwndLimited, "", "", s.rwnd, "the receive window held TCP back for "+
		unit.Percent(s.rwnd)+" of the window")
}

// slowReader is an application that takes its data too slowly.
func slowReader() Rule {
	return Rule{Class: SlowReader, Label: "the application that receives is slow", Ends: true,
		Means: "the receive window holds TCP back for 40 % of the time or more, and the receiver closes it " +
			"ten " +
			"times per second or more: its buffer is full",
		Judge: func(o *Observation) Judgement {
			s, why := o.tcpShares()
			if why != "" {
				return missing(why)
			}
			_, receiver := o.Ends()
			facts := []evidence.Evidence{rwndFact(s)}
			score := ramp(s.rwnd, .1, .5, -5, 2) + o.wants()
			uneven, known := o.Metric(metrics.Consistency)
			if known {
				score += ramp(uneven, .25, .6, 0, -1.5)
			}
			if hz, ok := o.zeroWindows(); ok {
				score += ramp(hz, 2, 15, -3, 3)
				facts = append(facts, fact("TcpExtTCPToZeroWindowAdv", receiver, "socket", hz,
					fmt.Sprintf("the receiver closed its window %s times per second", unit.Significant(hz,
						3))))
			} else {
				bytes, _ := o.inFlight()
				if _, receive := o.buffers(); receive > 0 {
					score += ramp(bytes/receive, .1, .5, 1, -2)
				}
			}
			got, _ := o.Metric(metrics.Goodput)
			return Judgement{Score: score, Node: receiver, Element: "application", Facts: facts,
				GainAtMost: o.gainToTester(), Text: fmt.Sprintf("the application on the %s reads no more "+
					"than %s: "+
					"its receive buffer is full", receiver, mbps(got))}
		},
		Experiments: streamDoses(0, "an application that reads slowly reads no faster from several "+
			"connections"),
		Remedies: []Remedy{{Do: "make the application read faster: larger reads, a thread of its own, no " +
			"work " +
			"between two reads"}}}
}

// receiveWindow is a window that is too small for the round trip.
func receiveWindow() Rule {
	return Rule{Class: ReceiveWindow, Label: "the receive window is too small for the round trip", Ends: true,
		Means: "the receive window holds TCP back for 40 % of the time or more, while the receiver keeps " +
			"up: it " +
			"rarely closes its window",
		Judge: func(o *Observation) Judgement {
			s, why := o.tcpShares()
			if why != "" {
				return missing(why)
			}
			_, receiver := o.Ends()
			bytes, rtt := o.inFlight()
			facts := []evidence.Evidence{rwndFact(s), fact("bytes_in_flight", receiver, "socket", bytes,
				fmt.Sprintf("%s kB per flow were under way in a round trip of %s", unit.Significant(bytes/1e3,
					3),
					milliseconds(rtt)))}
			score := ramp(s.rwnd, .1, .5, -5, 2) + o.wants()
			if hz, ok := o.zeroWindows(); ok {
				score += ramp(hz, 5, 25, 2, -2)
				facts = append(facts, fact("TcpExtTCPToZeroWindowAdv", receiver, "socket", hz,
					fmt.Sprintf("the receiver closed its window %s times per second", unit.Significant(hz,
						3))))
			}
			if _, waits, _, ok := o.addedDelay(); ok && waits > 3e6 {
				// Packets that wait elsewhere take long: the window would do for the path's own round trip.
				score -= ramp(waits/rtt, .4, .8, 0, 5)
			}
			if _, receive := o.buffers(); receive > 0 {
				score += ramp(receive, 128<<10, 512<<10, .8, -1)
				facts = append(facts, fact("rcvbuf_bytes", receiver, "socket", receive, fmt.Sprintf(
					"the receive buffer had %.0f kB", receive/1024)))
			}
			return Judgement{Score: score, Node: receiver, Element: "receive buffer", Facts: facts,
				GainAtMost: o.gainToTester(), Text: fmt.Sprintf("the receive window on the %s: %s kB per "+
					"round "+
					"trip of %s", receiver, unit.Significant(bytes/1e3, 3), milliseconds(rtt))}
		},
		Experiments: streamDoses(1, "each connection has a window of its own: twice as many carry twice as "+
			"much"),
		Remedies: []Remedy{{System: "linux", Do: "let the receiver's kernel tune a larger buffer",
			Commands: []string{"sysctl -w net.ipv4.tcp_rmem='4096 131072 33554432'"},
			Risk:     "each connection may take so much memory"},
			{Do: "leave the buffer to the kernel: do not set SO_RCVBUF"}}}
}

// streamDoses take more connections than the load has.
func streamDoses(expect float64, why string) func(*Observation, Judgement) []Experiment {
	return func(o *Observation, j Judgement) []Experiment {
		n := max(o.load().Streams, 1)
		e := Experiment{Class: j.Class, Factor: "streams", From: "tester", Expect: expect, Why: why}
		for _, by := range []int{2, 3, 4} {
			e.Doses, e.Resource = append(e.Doses, strconv.Itoa(by*n)), append(e.Resource, float64(by))
		}
		return []Experiment{e}
	}
}

// sendBuffer is a buffer of the sender that holds less than a round trip takes.
func sendBuffer() Rule {
	return Rule{Class: SendBuffer, Label: "the send buffer is too small", Ends: true,
		Means: "the send buffer holds TCP back for 30 % of the time or more; or what is under way fills " +
			"most of a " +
			"buffer of 128 KiB or less",
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
					"round trip "+
					"of %s", sender, unit.Significant(bytes/1e3, 3), milliseconds(rtt))}
		},
		Experiments: streamDoses(1, "each connection has a buffer of its own: twice as many carry twice as "+
			"much"),
		Remedies: []Remedy{{System: "linux", Do: "let the sender's kernel tune a larger buffer",
			Commands: []string{"sysctl -w net.ipv4.tcp_wmem='4096 65536 33554432'"},
			Risk:     "each connection may take so much memory"},
			{Do: "leave the buffer to the kernel: do not set SO_SNDBUF"}}}
}

// slowSender is an application that has no more to send.
func slowSender() Rule {
	return Rule{Class: SlowSender, Label: "the application that sends is slow", Ends: true,
		Means: "a load flat out had nothing to send for 25 % of the time or more, through a buffer of " +
			"usual size, " +
			"and its thread was not busy, nor did it wait for a core that it shares",
		Judge: func(o *Observation) Judgement {
			s, why := o.tcpShares()
			if why != "" {
				return missing(why)
			}
			sender, _ := o.Ends()
			facts := []evidence.Evidence{fact("tcp_busy_ratio", sender, "application", s.busy,
				"TCP had data to send for "+unit.Percent(s.busy)+" of the window")}
			waits, full, why := o.starved(sender)
			if why != "" {
				return missing(why)
			}
			score := ramp(s.busy, .65, .9, 3.5, -5) + o.wants() - waits
			if waits > 0 {
				facts = append(facts, fact("host_cpu_ratio", record.HostNode, "cpu", full, "the cores that "+
					"its threads share were busy for "+unit.Percent(full)+" of the window"))
			}
			if !o.FlatOut() {
				score = min(score, -2)
			}
			if send, _ := o.buffers(); send > 0 {
				score += ramp(send, 48<<10, 128<<10, -3, .3)
			}
			if _, use, ok := o.threadUse(sender); ok {
				score += ramp(use, .08, .3, .5, -5) // else it had no CPU to give more
				facts = append(facts, fact("threads_ns", sender, "thread", use,
					"its threads used "+unit.Percent(use)+" of a core"))
			}
			if uneven, ok := o.Metric(metrics.Consistency); ok {
				score += ramp(uneven, .2, .5, 0, -3)
			}
			got, _ := o.Metric(metrics.Goodput)
			return Judgement{Score: score, Node: sender, Element: "application", Facts: facts,
				GainAtMost: o.gainToTester(),
				Text: fmt.Sprintf("the application on the %s has no more than %s to send", sender,
					mbps(got))}
		},
		Experiments: streamDoses(0, "an application that has no more to send has none for further "+
			"connections"),
		Remedies: []Remedy{{Do: "make the application give its data faster: larger writes, no work " +
			"between two writes"}}}
}

// starved is how much a full machine explains of a sender that has nothing to send: on cores that all roles
// share its threads wait for one. Those that ask for less than their share get it, so that one which hardly
// runs does not wait for a core.
func (o *Observation) starved(sender string) (score, full float64, why string) {
	if o.Run.Node(sender).OwnCPUs() {
		return 0, 0, ""
	}
	s, why := o.systemAt(record.HostNode)
	if why != "" {
		return 0, 0, "whether the cores that all roles share were full is not known: " + why
	}
	_, ran, _ := o.threadUse(sender)
	if o.load().Direction == record.Both {
		_, too, _ := o.threadUse(o.far())
		ran += too
	}
	full = s.Busy / float64(len(s.Cores))
	return ramp(full, .8, .95, 0, 1) * ramp(ran, .04, .12, 0, 8), full, ""
}

// threadUse is the share of the window for which the busiest thread of an end's load generator ran, and that
// of all of them together.
func (o *Observation) threadUse(node string) (busiest, all float64, ok bool) {
	for _, u := range o.Trial.Traffic.Ends {
		if u.Node != node {
			continue
		}
		for _, ns := range u.ThreadsNs {
			used := o.perSecond(float64(ns)) / 1e9
			busiest, all, ok = max(busiest, used), all+used, true
		}
	}
	return busiest, all, ok
}

func clientCPU() Rule {
	return endCPU(ClientCPU, "client", func(o *Observation) string { return o.near() })
}
func serverCPU() Rule {
	return endCPU(ServerCPU, "server", func(o *Observation) string { return o.far() })
}

// near and far are the ends of the load, whichever way it goes.
func (o *Observation) near() string {
	if t := o.Topology(); t != nil {
		return t.Near
	}
	return "client"
}

func (o *Observation) far() string {
	if t := o.Topology(); t != nil {
		return t.Far
	}
	return "server"
}

// endCPU is an end whose own CPU is what is full.
func endCPU(class, end string, of func(*Observation) string) Rule {
	return Rule{Class: class, Label: "the " + end + "'s CPU is full", Ends: true,
		Means: "a thread of the load generator there runs for 90 % of the window or more, or a core of a " +
			"machine " +
			"that is this end alone is busy for 95 %",
		Judge: func(o *Observation) Judgement {
			node := of(o)
			if o.Trial.Traffic == nil {
				return missing("there was no traffic")
			}
			use, _, ok := o.threadUse(node)
			var facts []evidence.Evidence
			score := absent
			if ok {
				facts = append(facts, fact("threads_ns", node, "thread", use,
					"the busiest thread of the load generator used "+unit.Percent(use)+" of a core"))
				score = ramp(use, .7, .95, unlikely, 1.8)
			}
			if o.Run.Node(node).OwnMachine() {
				if s, why := o.systemAt(node); why == "" {
					score, ok = max(score, ramp(s.Full.Busy, .8, .97, unlikely, 2.5)), true
					facts = append(facts, s.coreFact())
				}
			} else if s, why := o.systemAt(record.HostNode); why == "" {
				// On shared cores a thread that has to wait for one is not what limits.
				score -= ramp(s.Busy/float64(len(s.Cores)), .9, .99, 0, 1.5)
			}
			if !ok {
				return missing("the CPU time of the " + node + " was not read")
			}
			return Judgement{Score: score + o.wants(), Node: node, Element: "cpu", Facts: facts,
				GainAtMost: o.gainToTester(), Text: "the " + node + "'s CPU is full: its thread used " +
					unit.Percent(use) + " of a core"}
		},
		Experiments: streamDoses(1, "further connections have threads of their own, on other cores"),
		Remedies: []Remedy{{Do: "use more streams, larger packets, or a faster machine at this end"},
			{System: "linux", Do: "let the card take over work", Commands: []string{
				"ethtool -K DEV tso on gso on gro on"}}}}
}
