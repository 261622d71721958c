package diagnosis

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// held returns the queue that throttles the load most, with the terms that this limits the load; why gives
// the reason if there is none.
func (o *Observation) held() (q queue, terms []Term, why string) {
	all, why := o.queues(false)
	if len(all) == 0 {
		return queue{}, nil, why
	}
	q = slices.MaxFunc(all, func(a, b queue) int {
		return cmp.Or(cmp.Compare(a.holds(), b.holds()), cmp.Compare(a.overlimits, b.overlimits))
	})
	probes, tcp, _, _ := o.addedDelay()
	return q, []Term{q.throttles().by(o.heldFacts(q)[0]), contradicts("uneven", degree(q.uneven, .1, .5)),
		supports("delays", degree(max(probes, tcp), 1e6, 5e6))}, ""
}

// heldFacts returns the numbers of a queue that throttles.
func (o *Observation) heldFacts(q queue) factList {
	out := factList{
		fact("overlimits", q.node, q.port, q.overlimits, fmt.Sprintf("the queue at %s throttled its output "+
			"%s times per packet", q.place(), unit.Significant(q.overlimits, 2))),
		fact("tx_bytes", q.node, q.port, q.rateBps, fmt.Sprintf("the port sent %s, varying by %s",
			mbps(q.rateBps), unit.Percent(q.uneven))),
	}
	switch {
	case q.idle() > .5 && q.setBps == 0:
		out = slices.Insert(out, 0, fact("qlen_packets", q.node, q.port, q.waited, fmt.Sprintf("the queue "+
			"at %s held packets in %s of the samples, and dropped none", q.place(), unit.Percent(q.waited))))
	case q.idle() > .5:
		out = slices.Insert(out, 0, q.setFact())
	case q.setBps > 0:
		out = append(out, q.setFact())
	}
	if probes, tcp, least, ok := o.addedDelay(); ok {
		out = append(out, delayFact(least, probes, "queueing added "+unit.Nanoseconds(probes)+
			" to the probe RTT, "+unit.Nanoseconds(tcp)+" to the TCP RTT"))
	}
	return append(out, fact("drops", q.node, q.port, q.drops, fmt.Sprintf("the queue dropped %s of its "+
		"packets", unit.Percent(q.lost()))))
}

// setFact compares what a port sent with the rate that its queue is set to.
func (q queue) setFact() evidence.Evidence {
	return against(fact("tx_bytes", q.node, q.port, q.rateBps, fmt.Sprintf("the queue is set to %s, and the "+
		"port sent %s", mbps(q.setBps), unit.Percent(q.rateBps/q.setBps)+" of that")), q.setBps)
}

// lineShare returns goodput ÷ the stated or read rate of the path; 0 where there is none.
func (o *Observation) lineShare() float64 {
	got, _ := o.Metric(metrics.Goodput)
	return ratio(got, o.Line.Value)
}

// gainToTester bounds a gain by what the tester reaches alone; 0 = not known.
func (o *Observation) gainToTester() float64 {
	got, ok := o.Metric(o.Tester.Metric)
	if !ok || got <= 0 || o.Tester.Value <= got {
		return 0
	}
	return o.Tester.Value / got
}
