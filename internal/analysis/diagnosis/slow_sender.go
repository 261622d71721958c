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
	j := at.candidate().text("the application on the %s sends only %b", sender, o.goodput())
	waits := 0.0
	if !o.Run.Node(sender).OwnCPUs() {
		machine, why := o.systemAt(record.HostNode)
		needs(why == "", "whether the shared cores were saturated is not known: "+why)
		// The sender's threads wait for a shared core, unless they use little CPU time.
		_, ran, _ := o.threadUse(sender)
		if o.bothWays() {
			_, far := o.nearFar()
			_, too, _ := o.threadUse(far)
			ran += too
		}

		waits = degree(machine.mean(), .8, .95) * degree(ran, .04, .12)
		if waits > 0 {
			j = j.facts(fact("host_cpu_ratio", record.HostNode, "cpu", machine.mean(),
				"the cores its threads share were busy for %h of the window"))
		}
	}

	return j.with(requires("nothing-to-send", s.busy, .9, .65).by(
		at.fact(metrics.BusyRatio, s.busy, "TCP had data to send for %h of the window")),
		requires("flat-out", yes(o.load().RateBps == 0)),
		contradicts("waits-for-core", waits))
}, streamSteps(0, "an application with no more to send has nothing for more connections"))
