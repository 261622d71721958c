package diagnosis

import (
	"cmp"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// waitedIn returns the mean time in ns that packets waited in a queue: backlog ÷ drain rate (Little's law).
// Packets that leave in the window entered the queue earlier by that time, so the backlog is averaged over a
// window shifted by the wait. The result includes the path delay that a netem emulates.
func (o *Observation) waitedIn(q queue) (ns float64) {
	c := o.columnAt(q.place, "qdisc", "backlog_bytes")
	sent := o.passed(q.place, "tx").bytes
	w := o.Trial.Window
	for range 2 {
		backlog, ok := c.curve.Mean(w.Start-int64(ns), w.End-int64(ns))
		if !ok || sent == 0 {
			break
		}

		ns = backlog / sent * float64(w.End-w.Start)
	}

	if q.kind == "netem" {
		d, _ := o.addedDelay()
		ns -= d.lowest
		if q.setBps == 0 { // such a netem delays probes as much as data
			ns = min(ns, d.probes)
			if ns < netemVaries {
				return 0
			}
		}
	}

	return max(ns, 0)
}

// balanceDelay compares the time spent in queues with the added RTT.
func (o *Observation) balanceDelay(l *Ledger) {
	for _, a := range slices.Concat(l.Data, l.Acks) {
		l.WaitedNs += a.WaitedNs
	}

	added, ok := o.meanAdded()
	if !ok {
		return
	}

	l.AddedNs = &added
	if added-l.WaitedNs > max(.1*added, processingNs) {
		core, _ := o.busyCore()
		l.WaitedWhere = cmp.Or(core, o.slowSegments(l))
	}
}

// slowSegments returns where packets spent the added RTT that queues do not explain: the place, or the two
// places, in which they spent at least half of it, or "" if no such place is known. Probes to the routers and
// to the far end divide the path into segments. Time that no probe spent on the path counts as spent in the
// endpoints.
func (o *Observation) slowSegments(l *Ledger) string {
	const minAnswers = 5
	t := o.Topology()
	last := len(t.Links) - 1
	probes := make([]*record.Latency, last+1) // by the last link that they cross
	probes[last] = o.Trial.Loaded
	for _, h := range o.Trial.Hops {
		if h.Number <= last {
			probes[h.Number-1] = h.Loaded
		}
	}

	type spent struct {
		where string
		ns    float64
	}
	var all []spent
	fastest := o.value(metrics.MinRTTTCP)
	most := (*l.AddedNs - l.WaitedNs) / 2
	rest := 2 * most
	from, queued, sofar := t.Near, 0.0, 0.0
	for i, link := range t.Links {
		queued += l.waitedOn(link)
		rtts := metrics.Answered(probes[i])
		if len(rtts) < minAnswers {
			continue
		}

		added := statistics.Total(rtts)/float64(len(rtts)) - min(rtts[0], cmp.Or(fastest, rtts[0]))
		here := max(added-sofar-queued, 0)
		to := link.Ends[1].Node
		all = append(all, spent{"between the " + from + " and the " + to, here})
		rest -= here
		from, queued, sofar = to, 0, added
	}

	if from == t.Far {
		all = append(all, spent{"in the endpoints", rest})
	}

	slices.SortStableFunc(all, func(a, b spent) int { return cmp.Compare(b.ns, a.ns) })
	var where []string
	for _, s := range all[:min(len(all), 2)] {
		where = append(where, s.where)
		if most -= s.ns; most <= 0 {
			return strings.Join(where, " and ")
		}
	}
	return ""
}

// waitedOn returns the time in ns that packets waited in queues at the ends of a link.
func (l *Ledger) waitedOn(link record.TopoLink) (ns float64) {
	for _, a := range slices.Concat(l.Data, l.Acks) {
		for _, end := range link.Ends {
			if end.Node == a.Node && end.Port == a.Element {
				ns += a.WaitedNs
			}
		}
	}
	return ns
}

// netemVaries is the largest variation, in ns, of a netem's delay in an emulated router.
const netemVaries = 5e6

// processingNs is the delay, in ns, that processing adds to an RTT even without a backlog.
const processingNs = .5e6

// meanAdded returns the value of Ledger.AddedNs: the larger of the delay of the load's own packets and of the
// probes. Probes may bypass the queue that holds a flow's packets, and the kernel smooths a flow's RTT, which
// then lags behind a growing queue.
func (o *Observation) meanAdded() (ns float64, ok bool) {
	if !o.IsTCP() {
		return o.Metric("one_way_p50_ns")
	}

	fastest, ok := o.Metric(metrics.MinRTTTCP)
	var sum, n float64
	for _, f := range o.tcpFlows() {
		for k, v := range f.TCP.Series.Column("rtt_ns") {
			if v > 0 && o.Trial.Window.Holds(f.TCP.Series.T[k]) {
				sum += v
				n++
			}
		}
	}

	d, _ := o.addedDelay()
	return max(ratio(sum, n)-fastest, d.probes), ok && n > 0
}

// busyCore describes waiting for the busiest core on the path, and returns the core's node. Both are "" if no
// core was busy for more than 80 % of the window.
func (o *Observation) busyCore() (text, node string) {
	s := o.fullestOf(append(o.wayNodes(), record.HostNode)...)
	if s.Full.Busy <= .8 {
		return "", ""
	}
	return say("waiting for %s of the %s, which was busy for %h", s.Full, s.Node, s.Full.Busy), s.Node
}

// senderLedger returns what limited TCP, or nil if the load is not TCP.
func (o *Observation) senderLedger() *Sender {
	if !o.IsTCP() {
		return nil
	}

	read := func(metric string) *float64 {
		if v, ok := o.Metric(metric); ok {
			return &v
		}
		return nil
	}
	node, _ := o.Ends()
	return &Sender{
		Node:           node,
		Busy:           read(metrics.BusyRatio),
		RwndLimited:    read(metrics.RwndLimited),
		SndbufLimited:  read(metrics.SndbufLimited),
		NetworkLimited: read(metrics.NetworkLimited),
		MSS:            o.mss(),
	}
}

// waits returns the queue in which packets spent more than half of the added RTT, and whether they were data
// rather than acknowledgements. ok is false if there is no such queue.
func (l *Ledger) waits() (a Account, data, ok bool) {
	if l == nil || l.AddedNs == nil {
		return a, false, false
	}

	for i, one := range slices.Concat(l.Data, l.Acks) {
		if one.WaitedNs > max(a.WaitedNs, *l.AddedNs/2) {
			a, data, ok = one, i < len(l.Data), true
		}
	}
	return a, data, ok
}
