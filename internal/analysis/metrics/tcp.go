package metrics

import (
	"math"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// kernelTick is the maximum amount, in ns, by which a time that the kernel counts in jiffies exceeds the
// actual time. It is a tick of Linux's slowest timer, 100 Hz.
const kernelTick = int64(10e6)

func (m *Measured) addTCP(tr *record.Traffic, w record.Window) {
	if tr.Load.Protocol != "tcp" {
		return
	}

	var again, busy, rwnd, sndbuf float64
	counted := true
	var rtts []float64
	least := math.Inf(1)
	for _, f := range tr.Flows {
		if f.TCP == nil || f.SenderNs <= 0 {
			m.Lack("engine "+tr.Engine+" reports no TCP_INFO", Retransmits, RTTTCP, MinRTTTCP, BusyRatio,
				RwndLimited, SndbufLimited, NetworkLimited)
			return
		}

		if f.TCP.Retransmits == nil {
			counted = false
		} else {
			again += float64(*f.TCP.Retransmits)
		}

		share := 1 / float64(f.SenderNs) / float64(len(tr.Flows))
		busyNs := f.TCP.BusyNs
		over := busyNs - f.SenderNs
		if over > 0 && over <= kernelTick {
			busyNs = f.SenderNs
		}

		busy += float64(busyNs) * share
		rwnd += float64(f.TCP.RwndLimitedNs) * share
		sndbuf += float64(f.TCP.SndbufLimitNs) * share
		if f.TCP.MinRTTNs > 0 {
			least = math.Min(least, float64(f.TCP.MinRTTNs))
		}

		for k, v := range f.TCP.Series.Column("rtt_ns") {
			if v > 0 && w.Holds(f.TCP.Series.T[k]) { // false for NaN
				rtts = append(rtts, v)
			}
		}
	}

	if counted {
		m.Set(Retransmits, again)
	} else {
		m.Lack("engine "+tr.Engine+" reports none for a sender: not every system counts them", Retransmits)
	}

	m.Lack("engine "+tr.Engine+" reports no series of TCP_INFO", RTTTCP, MinRTTTCP)
	if len(rtts) > 0 {
		m.Set(RTTTCP, statistics.Median(rtts))
	}

	if !math.IsInf(least, 1) {
		m.Set(MinRTTTCP, least)
	}

	if busy == 0 && !chronographs(tr) {
		m.Lack("engine "+tr.Engine+" reports no TCP chronographs", BusyRatio, RwndLimited, SndbufLimited,
			NetworkLimited)
		return
	}

	m.Set(BusyRatio, busy)
	m.Set(RwndLimited, rwnd)
	m.Set(SndbufLimited, sndbuf)
	m.Set(NetworkLimited, math.Max(busy-rwnd-sndbuf, 0))
}

// chronographs reports whether the engine recorded TCP's chronographs for a flow. A busy time of 0 is then
// meaningful: TCP was busy for less than a jiffy, which is the unit of the kernel's count.
func chronographs(tr *record.Traffic) bool {
	return slices.ContainsFunc(tr.Flows, func(f record.Flow) bool {
		return f.TCP != nil && f.TCP.Series.Column("busy_ns") != nil
	})
}
