package diagnosis

import (
	"math"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// heldIn is how many packets more a queue held at the window's end than at its beginning.
func (o *Observation) heldIn(q queue) (n float64) {
	columns, _ := o.Columns(q.node, "qdisc", "qlen_packets")
	for _, c := range columns {
		if c.Label == q.port {
			n += c.last() - c.first()
		}
	}
	return n
}

// waitedIn is how long a packet waited in a queue, on average: the backlog ÷ the rate at which it drains
// (Little's law). The packets of the window entered the queue as long before it. What netem holds packets for
// without a rate is the path's own delay.
func (o *Observation) waitedIn(q queue) (ns float64) {
	if q.kind == "netem" && q.setBps == 0 {
		return 0
	}
	columns, _ := o.Columns(q.node, "qdisc", "backlog_bytes")
	bytes, _ := o.Sum(q.node, "netdev", "tx_bytes", func(l string) bool { return l == q.port })
	w := o.Trial.Window
	for _, c := range columns {
		if c.Label != q.port || bytes == 0 {
			continue
		}
		for range 2 {
			backlog, ok := c.curve.Mean(w.Start-int64(ns), w.End-int64(ns))
			if !ok {
				break
			}
			ns = backlog / bytes * float64(w.End-w.Start)
		}
		if q.kind == "netem" {
			least, _ := o.Metric(metrics.MinRTTTCP)
			ns = max(ns-least, 0)
		}
	}
	return ns
}

// balanceDelay holds the time in queues against the added RTT.
func (o *Observation) balanceDelay(l *Ledger) {
	for _, a := range slices.Concat(l.Data, l.Acks) {
		l.WaitedNs += a.WaitedNs
	}
	added, ok := o.meanAdded()
	if !ok {
		return
	}
	l.AddedNs = &added
	if math.Abs(added-l.WaitedNs) > max(.1*added, leastDelay) {
		l.WaitedWhere = o.waitsElsewhere()
	}
}

// leastDelay is what processing adds to a round trip without anything that waits, in ns.
const leastDelay = .5e6

// meanAdded is the mean RTT of the load's own packets in the window above the least that was seen: TCP's own
// samples, or one-way delays of datagrams. Probes may pass a queue by.
func (o *Observation) meanAdded() (ns float64, ok bool) {
	if !o.IsTCP() {
		ns, ok = o.Metric("one_way_p50_ns")
		return ns, ok
	}
	least, has := o.Metric(metrics.MinRTTTCP)
	sum, n := 0.0, 0.0
	for _, f := range o.Trial.Traffic.Flows {
		if f.TCP == nil {
			continue
		}
		for k, v := range f.TCP.Series.Column("rtt_ns") {
			if v > 0 && o.Trial.Window.Holds(f.TCP.Series.T[k]) {
				sum, n = sum+v, n+1
			}
		}
	}
	return max(ratio(sum, n)-least, 0), has && n > 0
}

// waitsElsewhere names what packets wait for outside all queues that are watched.
func (o *Observation) waitsElsewhere() string {
	most, at := 0.0, ""
	for _, node := range slices.Concat(o.wayNodes(), []string{record.HostNode}) {
		for _, c := range o.Cores(node) {
			if c.Busy > most {
				most, at = c.Busy, node
			}
		}
	}
	if at == "" {
		return ""
	}
	return "the cores of the " + at
}

func (o *Observation) senderLedger() *Sender {
	if !o.IsTCP() {
		return nil
	}
	node, _ := o.Ends()
	s := &Sender{Node: node}
	for metric, into := range map[string]**float64{metrics.BusyRatio: &s.Busy,
		metrics.RwndLimited: &s.RwndLimited, metrics.SndbufLimited: &s.SndbufLimited,
		metrics.NetworkLimited: &s.NetworkLimited} {
		if v, ok := o.Metric(metric); ok {
			*into = &v
		}
	}
	for _, f := range o.Trial.Traffic.Flows {
		if f.TCP != nil {
			s.MSS = max(s.MSS, f.TCP.MSS)
		}
	}
	return s
}
