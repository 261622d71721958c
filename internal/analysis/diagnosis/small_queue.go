package diagnosis

import (
	"fmt"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// smallQueue is a queue that drops bursts while neither rate nor CPU is at its limit.
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
			if j, ok := o.droppedEarly(); ok && j.Score > 0 {
				return j
			}
			other, _ := o.losing(func(q queue) bool { return !q.fifo() })
			if q.drops == 0 && other.lost() > .002 {
				return Judgement{Score: unlikely, Node: other.node, Element: other.port,
					Place: fmt.Sprintf("%s: the queue (%s) at %s drops %s of its packets, and what makes it "+
						"do so is not known", notKnown, other.kind, other.place(),
						unit.Percent(other.lost()))}
			}
			if q.drops == 0 {
				return Judgement{Score: absent, Facts: factList{fact("drops", "", "", 0,
					"no FIFO on the path dropped a packet")}}
			}
			drops := ramp(q.lost(), .0002, .0015, -3, 3)
			score := drops + q.held() + o.wants()
			if q.kind != "" {
				score += .8
			}
			facts := factList{fact("drops", q.node, q.port, q.drops, fmt.Sprintf("the queue at "+
				"%s dropped %s of its packets", q.place(), unit.Percent(q.lost())))}
			if probes, tcp, least, ok := o.addedDelay(); ok {
				score += ramp(max(probes, min(tcp, probes+5e6)), 5e6, 25e6, .5, -3)
				facts = append(facts, delayFact(least, probes, "queueing added only "+
					unit.Nanoseconds(probes)))
			}
			if s, why := o.systemOf(); why == "" {
				facts = append(facts, s.coreFact())
			}
			j := Judgement{Score: score, Node: q.node, Element: q.port, Facts: facts,
				GainAtMost: o.gainToTester(),
				Text: fmt.Sprintf("the queue at %s is too small: it drops %s of the packets and adds "+
					"no delay", q.place(), unit.Percent(q.lost()))}.weighed(drops)
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

// droppedEarly judges a FIFO that dropped packets while the load began: TCP has grown its congestion window
// since, by a segment per RTT (RFC 5681, section 3.1), and loses hardly any more.
func (o *Observation) droppedEarly() (j Judgement, ok bool) {
	held, limited := o.Metric(metrics.NetworkLimited)
	again, count, counted := o.resent()
	probes, tcp, _, timed := o.addedDelay()
	if !limited || !counted || !timed {
		return j, false
	}
	q, unexplained := o.overflowedEarly()
	again *= ratio(unexplained, max(count, 1))
	bytes, rtt := o.inFlight()
	grows := bytes / ethernetMSS / 2 * rtt / 1e9 // seconds from half of the window to the whole
	score := ramp(q.early, 3, 10, -4, 0) + ramp(grows/o.Trial.Window.Seconds(), .5, 2, -4, 2.5) +
		ramp(again, .0005, .002, 0, -4) + ramp(held, .5, .9, -4, 0) +
		ramp(max(probes, min(tcp, probes+5e6)), 3e6, 10e6, .5, -4) + q.held() +
		o.wants()
	facts := factList{
		fact("drops", q.node, q.port, q.early, fmt.Sprintf("the queue at %s dropped %.0f packets before "+
			"the window, %.0f in it", q.place(), q.early, q.drops)),
		fact("bytes_in_flight", "", "socket", bytes, fmt.Sprintf("%s kB per flow were in flight in an RTT "+
			"of %s: TCP needs %s to double that", unit.Significant(bytes/1e3, 3), unit.Nanoseconds(rtt),
			unit.Nanoseconds(2*grows*1e9))),
		fact(metrics.NetworkLimited, "", "", held, "neither the application nor the receive window nor "+
			"the send buffer limited TCP for "+unit.Percent(held)+" of the time")}
	return Judgement{Score: score, Node: q.node, Element: q.port, GainAtMost: o.gainToTester(), Facts: facts,
		Text: fmt.Sprintf("the queue at %s is too small: it dropped %.0f packets while the load began, and "+
			"the congestion window still grows", q.place(), q.early)}, true
}

// ethernetMSS is the MSS of Ethernet's MTU with IPv6 and timestamps, in bytes.
const ethernetMSS = 1428
