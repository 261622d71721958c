package diagnosis

import (
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// slowSender describes an application that has no more data to send. The rate of the load is not listed as
// planted, because every path carries lower rates.
var slowSender = rule(SlowSender, `
	label: the sending application is slow
	means: a load without a rate limit has nothing to send for at least 25 % of the time, and its \
		thread does not wait for a shared core
	traits: ends to-tester
	explains: at-capacity
	planted: slow_writer
	any: make the application write faster: larger writes, no work between writes
`, func(o *Observation) Candidate {
	s := need(tcpTimes(o))
	sender, _ := o.Ends()
	at := place{sender, "application"}
	waits, full, why := o.starved(sender)
	if why != "" {
		return missing(why)
	}

	j := at.candidate().text("the application on the %s sends only %b", sender, o.goodput())
	if waits > 0 {
		j = j.facts(fact("host_cpu_ratio", record.HostNode, "cpu", full,
			"the cores its threads share were busy for %h of the window"))
	}

	return j.with(requires("nothing-to-send", s.busy, .9, .65).by(
		at.fact(metrics.BusyRatio, s.busy, "TCP had data to send for %h of the window")),
		requires("flat-out", yes(o.load().RateBps == 0)),
		contradicts("waits-for-core", waits))
}, streamSteps(0, "an application with no more to send has nothing for more connections"))

// starved returns the certainty, from 0 to 1, that a saturated machine explains a sender without data to
// send, and the mean busy share of the machine's cores. If all roles share the cores, the sender's threads
// wait for a core. Threads that use little CPU time get a core without waiting.
func (o *Observation) starved(sender string) (waits, full float64, why string) {
	if o.Run.Node(sender).OwnCPUs() {
		return 0, 0, ""
	}

	s, why := o.systemAt(record.HostNode)
	if why != "" {
		return 0, 0, "whether the shared cores were saturated is not known: " + why
	}

	_, ran, _ := o.threadUse(sender)
	if o.bothWays() {
		_, far := o.nearFar()
		_, too, _ := o.threadUse(far)
		ran += too
	}

	return degree(s.mean(), .8, .95) * degree(ran, .04, .12), s.mean(), ""
}
