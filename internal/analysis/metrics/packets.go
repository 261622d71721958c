package metrics

import (
	"cmp"
	"math"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

func (m *Measured) addPackets(tr *record.Traffic) {
	if tr.Load.Protocol != "udp" {
		return
	}

	var sum record.Packets
	var twice, late, rate, offered float64
	see := func(name string, sum *float64, n *int64) {
		if n == nil {
			m.Lack("this way of counting packets does not see them", name)
			return
		}

		*sum += float64(*n)
	}
	for _, f := range tr.Flows {
		if f.Packets == nil || f.ReceiverNs <= 0 || f.SenderNs <= 0 {
			m.Lack("engine "+tr.Engine+" does not count packets", PacketRate, offeredRate, LossRatio,
				UnsentRatio, duplicates, Reordered, delayVariation, longestGap)
			return
		}

		p := f.Packets
		sum.Sent += p.Sent
		sum.Unsent += p.Unsent
		if p.UnsentUnknown {
			m.Lack("engine "+tr.Engine+" does not count them", UnsentRatio)
		}

		sum.Lost += p.Lost
		see(duplicates, &twice, p.Duplicates)
		see(Reordered, &late, p.Reordered)
		rate += float64(p.Received) / (float64(f.ReceiverNs) / 1e9)
		offered += float64(p.Sent) / (float64(f.SenderNs) / 1e9)
	}

	m.Set(PacketRate, rate)
	m.Set(offeredRate, offered)
	m.setUnless(m.Missing[duplicates], duplicates, twice)
	m.setUnless(m.Missing[Reordered], Reordered, late)
	m.addPacketDelays(tr)
	m.addOneWay(tr)
	if sum.Sent == 0 {
		m.Lack("nothing was sent", LossRatio, UnsentRatio)
		return
	}

	intended := float64(sum.Sent + sum.Unsent)
	m.Set(LossRatio, float64(sum.Lost+sum.Unsent)/intended)
	m.setUnless(m.Missing[UnsentRatio], UnsentRatio, float64(sum.Unsent)/intended)
}

// addPacketDelays adds the metrics of flows whose packets were timed one by one.
func (m *Measured) addPacketDelays(tr *record.Traffic) {
	var all []bucket
	packets := int64(0)
	gap := int64(0)
	for _, f := range tr.Flows {
		p := f.Packets
		if p.Delay == nil {
			m.Lack("this way of counting packets does not see them", delayVariation, longestGap)
			return
		}

		for _, c := range p.Delay.Counts {
			all = append(all, bucket{c.AboveNs, c.Packets})
			packets = packets + c.Packets
		}

		for _, g := range p.Gaps {
			gap = max(gap, g.Length)
		}
	}

	m.Set(longestGap, float64(gap))
	if ns, ok := quantileOf(all, packets, .99); ok {
		m.Set(delayVariation, ns)
	} else {
		m.Lack("no packet arrived", delayVariation)
	}
}

// addOneWay adds the one-way delays of the load's own packets, over both directions.
func (m *Measured) addOneWay(tr *record.Traffic) {
	var all []bucket
	total := int64(0)
	for _, d := range tr.OneWay {
		for _, c := range d.Counts {
			all = append(all, bucket{c.FromNs, c.Packets})
			total = total + c.Packets
		}
	}

	if len(all) == 0 {
		if tr.Engine == "xdp" {
			m.Lack("no packet's delay was told by one clock", oneWayP50, oneWayP99)
		}
		return
	}

	for name, level := range map[string]float64{oneWayP50: .5, oneWayP99: .99} {
		if !statistics.Carries(int(total), level) {
			m.Lack("too few packets carried their time", name)
			continue
		}

		ns, _ := quantileOf(all, total, level)
		m.Set(name, ns)
	}
}

// bucket is a bucket of a histogram. It counts the times from fromNs to the next bucket's fromNs.
type bucket struct{ fromNs, n int64 }

// quantileOf returns the lower bound of the bucket that contains the quantile of n values, and false if no
// bucket contains it.
func quantileOf(buckets []bucket, of int64, level float64) (float64, bool) {
	slices.SortFunc(buckets, func(a, b bucket) int { return cmp.Compare(a.fromNs, b.fromNs) })
	rank := int64(math.Ceil(level * float64(of)))
	for _, b := range buckets {
		if rank -= b.n; rank <= 0 {
			return float64(b.fromNs), true
		}
	}

	return 0, false
}
