package diagnosis

import (
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// losing returns the queue on the load's path that dropped the largest share of its packets. It considers
// only the queues for which keep returns true.
func (o *Observation) losing(keep func(queue) bool) (q queue, why string) {
	all, why := o.queues(o.hops())
	if len(all) == 0 {
		return q, why
	}
	return greatest(all, func(q queue) float64 { return yes(keep(q)) * q.lost() }), ""
}

// fifo reports whether the queue drops packets only when it is full, as a netem does.
func (q queue) fifo() bool {
	if q.kind == "netem" {
		return q.full
	}

	if q.polices && q.waited < .2 {
		return false // a policer dropped the packets
	}
	return (!q.managed || q.fifos) && !among(q.kind, noFIFO)
}

// noFIFO lists the qdiscs that choose which packets they drop, and "other", which stands for several qdiscs
// of unknown kinds.
const noFIFO = "fq sfq red choke sfb drr ets prio qfq other"

// minOutage is the minimum number of consecutive lost probes that count as an outage.
const minOutage = 3

// outages returns the number of outages and their mean duration in ns. An outage is a run of consecutive lost
// probes during which no data arrives. If many probes are also lost outside of such runs, as under random
// loss, there are no outages.
func (o *Observation) outages() (n int, ns float64) {
	l := o.Loaded
	if l == nil || o.shortGaps(l.IntervalNs) {
		return 0, 0
	}

	var run, inside, alone int
	for i := range len(l.RTT) + 1 {
		if i < len(l.RTT) && l.RTT[i] < 0 {
			run++
			continue
		}

		if run >= minOutage && !o.arrives(l, i-run, i) {
			n++
			inside += run
		} else {
			alone += run
		}

		run = 0
	}

	if n == 0 || 4*alone > inside {
		return 0, 0
	}

	return n, float64(inside) / float64(n) * float64(l.IntervalNs)
}

// arrives reports whether data arrived while probes were lost: at least a fifth of the load's rate, between
// two samples of the received bytes.
func (o *Observation) arrives(l *record.Latency, first, end int) bool {
	if end > len(l.SentAt) {
		return false
	}

	during := record.Window{Start: l.SentAt[first], End: l.SentAt[end-1] + l.IntervalNs}
	flows := o.Traffic.Flows
	var span, bytes, total float64
	for _, f := range flows {
		total += ratio(float64(f.ReceivedBytes), float64(f.ReceiverNs))
		all := f.Received.Column("bytes")
		for i := 1; i < len(all); i++ {
			before, now := f.Received.T[i-1], f.Received.T[i]
			if during.Holds(before) && during.Holds(now) {
				span += float64(now - before)
				bytes += all[i] - all[i-1]
			}
		}
	}

	return bytes > .2*span*total/float64(len(flows))
}

// shortGaps reports whether the load's datagrams were numbered and every gap was short: less than half of the
// datagrams that a flow sends in the shortest outage.
func (o *Observation) shortGaps(probesNs int64) (counted bool) {
	for _, f := range o.Traffic.Flows {
		if f.Packets == nil || f.Packets.Duplicates == nil {
			continue
		}

		counted = true
		outage := ratio(float64(f.Packets.Sent), float64(f.SenderNs)) * float64(minOutage*probesNs)
		for _, g := range f.Packets.Gaps {
			if float64(g.Length) >= max(outage/2, 1) {
				return false
			}
		}
	}
	return counted
}

// fullestOf returns the CPUs with the busiest core, among the CPUs of some nodes.
func (o *Observation) fullestOf(nodes ...string) (found system) {
	for _, node := range nodes {
		s, _ := o.systemAt(node)
		if s.Full.Busy > found.Full.Busy {
			found = s
		}
	}
	return found
}

// fullest returns the busy share of the busiest core for which packets may wait: a core of a router or of the
// machine that runs the lab.
func (o *Observation) fullest() float64 {
	return o.fullestOf(append([]string{record.HostNode}, o.Routers()...)...).Full.Busy
}

// reorderSigns returns three signs of reordering. share is the number of packets that arrived out of order,
// as counted by both ends, per packet of the load. spurious is the number of retransmissions of segments that
// had arrived, per retransmitted segment. seen is how often acknowledgements showed the sender that data was
// late rather than lost. Kernels before 4.19 do not count seen.
func (o *Observation) reorderSigns() (share, spurious, seen float64, ok bool) {
	sender, receiver := o.Ends()
	packets := o.goodput() / 8 * o.Window.Seconds() / 1448
	ofo, ok := o.grew(receiver, "TcpExtTCPOFOQueue")
	dsack, _ := o.grew(sender, "TcpExtTCPDSACKRecv TcpExtTCPDSACKOfoRecv")
	again := o.value(metrics.Retransmits)
	dups := 0.0
	for _, f := range o.tcpFlows() {
		seen += float64(f.TCP.ReordSeen)
		dups += float64(f.TCP.DsackDups)
	}

	seen = ratio(seen, packets)
	return max(ratio(ofo, packets), seen), ratio(max(dsack, dups), max(again, 1)), seen, ok || seen > 0
}
