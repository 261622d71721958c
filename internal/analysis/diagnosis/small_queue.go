package diagnosis

import (
	"fmt"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// smallQueue returns the rule for a queue that drops bursts while neither rate nor CPU is at its limit.
func smallQueue() Rule {
	return Rule{Class: SmallQueue, Wasteful: true,
		Label: "a queue is too small",
		Means: "a FIFO drops at least 0.05 % of its packets without throttling, and queueing adds " +
			"little delay; or it throttles, and drops packets while its output stays a fifth below the " +
			"rate that it is set to; or it dropped packets while the load began, and the congestion " +
			"window has not recovered yet",
		Judge: func(o *Observation) Judgement {
			q, why := o.losing(queue.fifo)
			if why != "" {
				return missing(why)
			}
			if j, ok := o.droppedEarly(); ok && met(j.Terms...) > .5 {
				return j
			}
			other, _ := o.losing(func(q queue) bool { return !q.fifo() })
			if q.drops == 0 && other.lost() > .002 {
				return Judgement{Terms: o.overflows(q, requires("drops", 0), 5e6, 25e6), Node: other.node,
					Element: other.port, Place: fmt.Sprintf("%s: the queue (%s) at %s drops %s of its "+
						"packets, and what makes it do so is not known", notKnown, other.kind, other.place(),
						unit.Percent(other.lost()))}
			}
			if q.drops == 0 {
				return Judgement{Score: absent, Facts: factList{fact("drops", "", "", 0,
					"no FIFO on the path dropped a packet")}}
			}
			facts := factList{fact("drops", q.node, q.port, q.drops, fmt.Sprintf("the queue at "+
				"%s dropped %s of its packets", q.place(), unit.Percent(q.lost())))}
			if probes, _, least, ok := o.addedDelay(); ok {
				facts = append(facts, delayFact(least, probes, "queueing added only "+
					unit.Nanoseconds(probes)))
			}
			if s, why := o.systemOf(); why == "" {
				facts = append(facts, s.coreFact())
			}
			j := Judgement{Node: q.node, Element: q.port, Facts: facts, GainAtMost: o.gainToTester(),
				Terms: o.overflows(q, requires("drops", degree(q.lost(), .0002, .0015)).by(facts[0]),
					5e6, 25e6),
				Text: fmt.Sprintf("the queue at %s is too small: it drops %s of the packets and adds "+
					"no delay", q.place(), unit.Percent(q.lost()))}
			if q.idle() > 0 {
				j.Facts = append(j.Facts, q.setFact())
				j.Text += fmt.Sprintf(", at %s of the %s that it is set to", mbps(q.rateBps), mbps(q.setBps))
				got, _ := o.Metric(metrics.Goodput)
				if gain := ratio(q.setBps, got); gain > 0 && (j.GainAtMost == 0 || gain < j.GainAtMost) {
					j.GainAtMost = gain
				}
			}
			return j
		},
		Remedies: []Remedy{
			{System: "linux", Do: "use a longer queue, preferably one with AQM", Commands: []string{
				"tc qdisc replace dev DEV root fq_codel"}, Risk: "a long FIFO adds delay", Factor: "queue",
				Level: "fq_codel"},
			{System: "openwrt", Do: "use the default qdisc", Commands: []string{
				"tc qdisc replace dev DEV root fq_codel"}},
			{System: "routeros", Do: "use a longer queue type on the interface", Commands: []string{
				"/queue interface set INTERFACE queue=multi-queue-ethernet-default"},
				Risk: "more latency under load"},
		}}
}

// droppedEarly judges a FIFO that dropped packets while the load began: TCP has since grown its congestion
// window, by a segment per RTT (RFC 5681, section 3.1), and loses hardly any more.
func (o *Observation) droppedEarly() (j Judgement, ok bool) {
	held, limited := o.Metric(metrics.NetworkLimited)
	again, count, counted := o.resent()
	if _, _, _, timed := o.addedDelay(); !limited || !counted || !timed {
		return j, false
	}
	q, unexplained := o.overflowedEarly()
	again *= ratio(unexplained, max(count, 1))
	bytes, rtt := o.inFlight()
	grows := bytes / ethernetMSS / 2 * rtt / 1e9 // seconds from half of the window to the whole
	early := min(degree(q.early, 3, 10), degree(grows/o.Trial.Window.Seconds(), .5, 2),
		degree(again, .002, .0005), degree(held, .5, .9))
	facts := factList{
		fact("drops", q.node, q.port, q.early, fmt.Sprintf("the queue at %s dropped %.0f packets before "+
			"the window, %.0f in it", q.place(), q.early, q.drops)),
		fact("bytes_in_flight", "", "socket", bytes, fmt.Sprintf("%s kB per flow were in flight in an RTT "+
			"of %s: TCP needs %s to double that", unit.Significant(bytes/1e3, 3), unit.Nanoseconds(rtt),
			unit.Nanoseconds(2*grows*1e9))),
		fact(metrics.NetworkLimited, "", "", held, "neither the application nor the receive window nor "+
			"the send buffer limited TCP for "+unit.Percent(held)+" of the time")}
	return Judgement{Node: q.node, Element: q.port, GainAtMost: o.gainToTester(), Facts: facts,
		Terms: o.overflows(q, requires("drops", early), 3e6, 10e6),
		Text: fmt.Sprintf("the queue at %s is too small: it dropped %.0f packets while the load began, and "+
			"the congestion window still grows", q.place(), q.early)}, true
}

// overflows returns the terms of a FIFO that is too small, which adds a short delay in ns and not a long one.
func (o *Observation) overflows(q queue, drops Term, short, long float64) []Term {
	probes, tcp, _, _ := o.addedDelay()
	delay := degree(max(probes, min(tcp, probes+5e6)), short, long)
	return []Term{drops, contradicts("delay", delay), q.atRate(), supports("known-queue", yes(q.kind != ""))}
}

// ethernetMSS is the MSS of Ethernet's MTU with IPv6 and timestamps, in bytes.
const ethernetMSS = 1428
