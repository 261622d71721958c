package diagnosis

import (
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
)

// smallQueue describes a queue that drops bursts although neither the rate nor the CPU is at its limit.
var smallQueue = rule(SmallQueue, `
	label: a queue is too small
	means: queueing adds little delay, and a FIFO drops at least 0.05 % of its packets without \
		throttling; or it throttles, and drops packets although its output is 20 % below the \
		configured rate; or it dropped packets when the load started, and the congestion window has \
		not recovered yet
	traits: wasteful
	explains: at-capacity
	planted: tiny_queue
	linux: use a longer queue, preferably one with AQM
		$ tc qdisc replace dev DEV root fq_codel
		risk: a long FIFO adds delay
		plan: queue=fq_codel
	openwrt: use the default qdisc
		$ tc qdisc replace dev DEV root fq_codel
	routeros: use a longer queue type on the interface
		$ /queue interface set INTERFACE queue=multi-queue-ethernet-default
		risk: more latency under load
`, func(o *Observation) Candidate {
	q := need(o.losing(queue.fifo))
	if j, ok := o.droppedEarly(); ok && met(j.Terms...) > .5 {
		return j
	}

	other, _ := o.losing(func(q queue) bool { return !q.fifo() })
	if q.drops == 0 && other.lost() > .002 {
		j := other.candidate(o.overflows(q, requires("drops", 0), 5e6, 25e6)...)
		j.Elsewhere = say("%s: the queue (%s) at %s drops %h of its packets, and what makes it do so "+
			"is not known", notKnown, other.kind, other, other.lost())
		return j
	}

	if q.drops == 0 {
		for _, node := range o.wayNodes() {
			// A device, such as a tunnel's, may drop packets after its queue.
			if o.total(place{Node: node}, "netdev", "tx_dropped") > 0 {
				return excluded()
			}
		}
		return excluded(seen("drops", 0, "no FIFO on the path dropped a packet"))
	}

	j := q.candidate(o.overflows(q, requires("drops", q.lost(), .0002, .0015).by(
		q.fact("drops", q.drops, "the queue at %s dropped %h of its packets", q, q.lost())), 5e6,
		25e6)...).
		gain(o.gainToTester()).
		text("the queue at %s is too small: it drops %h of the packets and adds no delay", q, q.lost())
	if d, ok := o.addedDelay(); ok {
		j = j.facts(d.fact("queueing added only %n", d.probes))
	}

	if s, why := systemOf(o); why == "" {
		j = j.facts(s.coreFact())
	}

	if q.idle() > 0 {
		j = j.facts(q.setFact())
		j.Text += say(", at %b of the %b that it is set to", q.rateBps, q.setBps)
		gain := ratio(q.setBps, o.goodput())
		if gain > 0 && (j.GainAtMost == 0 || gain < j.GainAtMost) {
			j.GainAtMost = gain
		}
	}

	return j
})

// droppedEarly checks for a FIFO that dropped packets while the load started. After that, TCP grows its
// congestion window by only one segment per RTT (RFC 5681, section 3.1) and loses little.
func (o *Observation) droppedEarly() (j Candidate, ok bool) {
	held, limited := o.Metric(metrics.NetworkLimited)
	again, counted := o.resent()
	_, timed := o.addedDelay()
	if !limited || !counted || !timed {
		return j, false
	}

	all, _ := o.queues(o.hops())
	all = slices.DeleteFunc(all, func(q queue) bool { return !q.fifo() })
	q := greatest(all, func(q queue) float64 { return q.early })
	resent := o.value(metrics.Retransmits)
	unexplained := resent // retransmissions that the known drops of FIFOs do not explain
	for _, q := range all {
		unexplained -= q.early + q.drops + q.refused
	}

	again *= ratio(max(unexplained, 0), max(resent, 1))
	bytes, rtt := o.inFlight()
	grows := bytes / ethernetMSS / 2 * rtt / 1e9 // seconds to grow from half the window to the whole
	early := min(degree(q.early, 3, 10), degree(grows/o.Window.Seconds(), .5, 2),
		degree(again, .002, .0005), degree(held, .5, .9))
	return q.candidate(o.overflows(q, requires("drops", early), 3e6, 10e6)...).
		gain(o.gainToTester()).
		facts(q.fact("drops", q.early,
			"the queue at %s dropped %.0f packets before the window, %.0f in it", q, q.early, q.drops),
			fact("bytes_in_flight", "", "socket", bytes,
				"%g kB per flow were in flight in TCP's RTT of %n: it needs %n to double that", bytes/1e3,
				rtt, 2*grows*1e9),
			networkFact(held)).
		text("the queue at %s is too small: it dropped %.0f packets while the load began, and the "+
			"congestion window still grows", q, q.early), true
}

// networkFact reports the share of the time in which neither end limited TCP.
func networkFact(share float64) Fact {
	return seen(metrics.NetworkLimited, share,
		"neither the application nor a window nor a buffer held TCP back for %h of the time")
}

// overflows returns the terms for a FIFO that is too small. Two observations contradict it. One is a delay,
// whose weight grows from none at short to full at long (both in ns). The other is a queue at its configured
// rate, because such a queue drops the excess.
func (o *Observation) overflows(q queue, drops Term, short, long float64) []Term {
	d, _ := o.addedDelay()
	return []Term{drops, contradicts("delay", d.queueing(), short, long),
		contradicts("throttles", q.holds(), .02, .2)}
}

// ethernetMSS is the MSS for Ethernet's MTU with IPv6 and timestamps, in bytes.
const ethernetMSS = 1428
