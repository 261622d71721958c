package diagnosis

import (
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// slowSender describes an application that has no more to send.
var slowSender = Rule{
	Class:    SlowSender,
	Ends:     true,
	ToTester: true,
	Words: words(`
		label: the sending application is slow
		means: a full-rate load had nothing to send for at least 25 % of the time, or less than a \
			quarter of what the congestion window allows was in flight; with a normal buffer size, and \
			its thread was neither busy nor waiting for a shared core
		any: make the application write faster: larger writes, no work between writes
	`),
	Check: given(tcpTimes, func(o *Observation, s tcpShares) Candidate {
		sender, _ := o.Ends()
		at := place{sender, "application"}
		waits, full, why := o.starved(sender)
		if why != "" {
			return missing(why)
		}
		j := at.candidate().text("the application on the %s sends only %b", sender, o.goodput())
		idle := degree(s.busy, .9, .65)
		if window := o.congestionWindow(); window > 0 && s.rwnd+s.sndbuf < .05 {
			// Data in flight keeps TCP busy, too: it has less to send than its window takes.
			bytes, _ := o.inFlight()
			lost, _, _ := o.resent()
			idle = max(idle, min(degree(bytes/window, .4, .15), degree(lost, .001, .0001)))
			j = j.facts(
				against(fact("bytes_in_flight", sender, "socket", bytes,
					"%g kB were in flight, the congestion window was %g kB", bytes/1e3, window/1e3), window))
		}
		if waits > 0 {
			j = j.facts(fact("host_cpu_ratio", record.HostNode, "cpu", full,
				"the cores its threads share were busy for %h of the window", full))
		}
		buffer, rests := 1.0, 1.0
		if send, _ := o.buffers(); send > 0 {
			buffer = degree(send, 48<<10, 128<<10)
		}
		if _, use, ok := o.threadUse(sender); ok {
			rests = degree(use, .3, .08) // otherwise it had no CPU to send more
			j = j.facts(fact("threads_ns", sender, "thread", use, "its threads used %h of a core", use))
		}
		died := 0.0
		if l := o.Ledger(); l != nil && l.Data[0].In != nil {
			died = ratio(l.Data[0].DiedPackets(), *l.Data[0].In)
		}
		uneven, _ := o.Metric(metrics.Consistency)
		return j.with(requires("nothing-to-send", idle).by(
			at.fact(metrics.BusyRatio, s.busy, "TCP had data to send for %h of the window", s.busy)),
			requires("flat-out", yes(o.FlatOut())),
			requires("normal-buffer", buffer),
			requires("idle-thread", rests),
			contradicts("waits-for-core", waits),
			contradicts("uneven", uneven, .2, .5),
			contradicts("dies-at-sender", died, .02, .08))
	}),
	Experiments: streamSteps(0, "an application with no more to send has nothing for more connections"),
}

// starved returns how far a full machine explains a sender that has nothing to send: on cores that all roles
// share its threads wait for one. Those that ask for less than their share get it, so one that hardly runs
// does not wait for a core.
func (o *Observation) starved(sender string) (waits, full float64, why string) {
	if o.Run.Node(sender).OwnCPUs() {
		return 0, 0, ""
	}
	s, why := o.systemAt(record.HostNode)
	if why != "" {
		return 0, 0, "whether the shared cores were saturated is not known: " + why
	}
	_, ran, _ := o.threadUse(sender)
	if o.load().Direction == record.Both {
		_, far := o.nearFar()
		_, too, _ := o.threadUse(far)
		ran += too
	}
	return degree(s.mean(), .8, .95) * degree(ran, .04, .12), s.mean(), ""
}
