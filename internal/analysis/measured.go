package analysis

import (
	"maps"
	"math"
	"slices"
	"sort"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// measured collects the numbers of one trial, and why others are missing. The two never hold the same name.
type measured struct {
	values  map[string]float64
	missing map[string]string
	rtts    map[string][]float64 // "idle", "loaded": answered probes, sorted
	busy    float64              // busy cores of the host in the window, all together; 0 = unknown
	routers float64              // the same of the routers' own cores
}

func newMeasured() *measured {
	return &measured{values: map[string]float64{}, missing: map[string]string{}, rtts: map[string][]float64{}}
}

func (m *measured) set(name string, v float64) {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		m.lack("not a number", name)
		return
	}
	m.values[name] = v
	delete(m.missing, name)
}

func (m *measured) lack(why string, names ...string) {
	for _, n := range names {
		if _, ok := m.values[n]; !ok {
			m.missing[n] = why
		}
	}
}

// measure computes the metrics of one trial that ended well.
func measure(t *record.Trial, p place) *measured {
	m := newMeasured()
	if t.Traffic != nil {
		m.addGoodput(t.Traffic)
		m.addPackets(t.Traffic)
		m.addTCP(t.Traffic)
		m.addEngine(t.Traffic)
		m.addConsistency(t)
		m.addResponsiveness(t)
		m.addShortFlows(t)
	} else if t.Row.Kind == record.RowLoad {
		m.lack("the engine reported nothing", goodput)
	}
	m.addLatency(t)
	m.addNodes(t, p)
	if t.Row.Kind == record.RowLoad {
		m.addEfficiency(p)
	}
	return m
}

func (m *measured) addGoodput(tr *record.Traffic) {
	byDirection := map[string]float64{}
	for i := range tr.Flows {
		f := &tr.Flows[i]
		if f.ReceiverNs <= 0 {
			m.lack("the receiver reported no window", goodput)
			return
		}
		byDirection[f.Direction] += float64(f.ReceivedBytes) * 8 / (float64(f.ReceiverNs) / 1e9)
	}
	if len(tr.Flows) == 0 {
		m.lack("the engine reported no flow", goodput)
		return
	}
	sum := 0.0
	for _, d := range slices.Sorted(maps.Keys(byDirection)) {
		sum += byDirection[d]
	}
	m.set(goodput, sum)
	if len(byDirection) > 1 {
		m.set(goodputUp, byDirection[record.Up])
		m.set(goodputDown, byDirection[record.Down])
	}
}

func (m *measured) addPackets(tr *record.Traffic) {
	names := []string{packetRate, offeredRate, lossRatio, unsentRatio, duplicates, reordered, delayVariation,
		longestGap}
	if tr.Load.Protocol != "udp" {
		return
	}
	var sum record.Packets
	var twice, late seenBy
	var rate, offered float64
	for i := range tr.Flows {
		f := &tr.Flows[i]
		if f.Packets == nil || f.ReceiverNs <= 0 || f.SenderNs <= 0 {
			m.lack("engine "+tr.Engine+" does not count packets", names...)
			return
		}
		p := f.Packets
		sum.Sent += p.Sent
		sum.Unsent += p.Unsent
		sum.Lost += p.Lost
		twice.add(p.Duplicates)
		late.add(p.Reordered)
		rate += float64(p.Received) / (float64(f.ReceiverNs) / 1e9)
		offered += float64(p.Sent) / (float64(f.SenderNs) / 1e9)
	}
	m.set(packetRate, rate)
	m.set(offeredRate, offered)
	m.setSeen(duplicates, twice)
	m.setSeen(reordered, late)
	m.addPacketDelays(tr)
	m.addOneWay(tr)
	if sum.Sent == 0 {
		m.lack("nothing was sent", lossRatio, unsentRatio)
		return
	}
	intended := float64(sum.Sent + sum.Unsent)
	m.set(lossRatio, float64(sum.Lost+sum.Unsent)/intended)
	m.set(unsentRatio, float64(sum.Unsent)/intended)
}

// addPacketDelays is for flows whose packets were looked at one by one.
func (m *measured) addPacketDelays(tr *record.Traffic) {
	const quantile = .99
	var all []record.DelayCount
	packets, gap := int64(0), int64(0)
	for i := range tr.Flows {
		p := tr.Flows[i].Packets
		if p.Delay == nil {
			m.lack("this way of counting packets does not see them", delayVariation, longestGap)
			return
		}
		for _, c := range p.Delay.Counts {
			all, packets = append(all, c), packets+c.Packets
		}
		for _, g := range p.Gaps {
			gap = max(gap, g.Length)
		}
	}
	m.set(longestGap, float64(gap))
	sort.Slice(all, func(i, j int) bool { return all[i].AboveNs < all[j].AboveNs })
	left := int64(math.Ceil(quantile * float64(packets)))
	for _, c := range all {
		if left -= c.Packets; left <= 0 {
			m.set(delayVariation, float64(c.AboveNs))
			return
		}
	}
	m.lack("no packet arrived", delayVariation)
}

// seenBy adds up a count that some ways of counting packets cannot see.
type seenBy struct {
	sum   int64
	blind bool
}

func (s *seenBy) add(n *int64) {
	if n == nil {
		s.blind = true
		return
	}
	s.sum += *n
}

func (m *measured) setSeen(name string, s seenBy) {
	if s.blind {
		m.lack("this way of counting packets does not see them", name)
		return
	}
	m.set(name, float64(s.sum))
}

func (m *measured) addTCP(tr *record.Traffic) {
	names := []string{retransmits, rttTCP, minRTTTCP, busyRatio, rwndLimited, sndbufLimited, networkLimited}
	if tr.Load.Protocol != "tcp" {
		return
	}
	var again, busy, rwnd, sndbuf float64
	var rtts []float64
	least := math.Inf(1)
	for i := range tr.Flows {
		f := &tr.Flows[i]
		if f.TCP == nil || f.SenderNs <= 0 {
			m.lack("engine "+tr.Engine+" reports no TCP_INFO", names...)
			return
		}
		again += float64(f.TCP.Retransmits)
		share := 1 / float64(f.SenderNs) / float64(len(tr.Flows))
		busy += float64(f.TCP.BusyNs) * share
		rwnd += float64(f.TCP.RwndLimitedNs) * share
		sndbuf += float64(f.TCP.SndbufLimitNs) * share
		if f.TCP.MinRTTNs > 0 {
			least = math.Min(least, float64(f.TCP.MinRTTNs))
		}
		for _, v := range f.TCP.Series.Column("rtt_ns") {
			if v > 0 { // NaN is not
				rtts = append(rtts, v)
			}
		}
	}
	m.set(retransmits, again)
	m.lack("engine "+tr.Engine+" reports no series of TCP_INFO", rttTCP, minRTTTCP)
	if len(rtts) > 0 {
		m.set(rttTCP, Median(rtts))
	}
	if !math.IsInf(least, 1) {
		m.set(minRTTTCP, least)
	}
	if busy == 0 {
		m.lack("engine "+tr.Engine+" reports no TCP chronographs", busyRatio, rwndLimited, sndbufLimited,
			networkLimited)
		return
	}
	m.set(busyRatio, busy)
	m.set(rwndLimited, rwnd)
	m.set(sndbufLimited, sndbuf)
	m.set(networkLimited, math.Max(busy-rwnd-sndbuf, 0))
}

func (m *measured) addEngine(tr *record.Traffic) {
	if len(tr.Ends) == 0 {
		m.lack("engine "+tr.Engine+" reports no CPU time", engineCPU)
		return
	}
	ns := int64(0)
	for _, u := range tr.Ends {
		ns += u.UserNs + u.SystemNs
	}
	m.set(engineCPU, float64(ns)/1e9)
}

func (m *measured) addConsistency(t *record.Trial) {
	curves, all := received(t.Traffic)
	if !all {
		m.lack("the engine gave no interval series for every flow", consistency)
		return
	}
	r, ok := windowEvenness(curves, t.Window.Start, t.Window.End)
	if !ok {
		m.lack("the window is too short to judge: it needs eight bins of 200 ms", consistency)
		return
	}
	m.set(consistency, r)
}

func (m *measured) addLatency(t *record.Trial) {
	for _, p := range []struct {
		kind, loss string
		l          *record.Latency
	}{{"idle", probeLossIdle, t.Idle}, {"loaded", probeLoss, t.Loaded}} {
		if p.l == nil || len(p.l.RTT) == 0 {
			continue
		}
		m.set(p.loss, lostShare(p.l))
		sorted := answered(p.l)
		m.rtts[p.kind] = sorted
		for _, q := range percentiles {
			if Carries(len(sorted), q.level) {
				m.set(rtt(p.kind, q), quantileSorted(sorted, q.level))
				continue
			}
			m.lack(tooFewProbes(len(sorted), q), rtt(p.kind, q))
		}
	}
	l := t.Loaded
	if l == nil {
		l = t.Idle
	}
	if late, ok := lateP99(l); ok {
		m.set(probeLate, late)
	}
	if off, ok := spacingP99(l); ok {
		m.set(probeSpacing, off)
	}
}

func (m *measured) addNodes(t *record.Trial, p place) {
	if t.Row.Kind != record.RowLoad || t.Traffic == nil {
		return
	}
	w := t.Window
	stems := []string{cpuRatio, busiestCore, softirqCore, stealRatio, foreignRatio, powerWatts, temperature,
		loopRate}
	host, ok := t.Nodes[hostNode]
	if !ok {
		m.lack(p.noHost(), append(prefixed(hostNode, stems...), softnetDrops, softnetSqueeze, guestsCPU)...)
	} else {
		m.addCPU(hostNode, host, w)
		m.addForeign(hostNode, host, w)
		m.addPower(hostNode, host, w)
		m.addTemperature(hostNode, host, w)
		m.addLoopRate(hostNode, host, w)
		m.addGuests(host, w)
		m.addSoftnet(softnetDrops, host, w, "dropped")
		m.addSoftnet(softnetSqueeze, host, w, "time_squeeze")
	}
	m.addRouters(t, p)
}

func (m *measured) addSoftnet(name string, n record.NodeData, w record.Window, stem string) {
	allCores := func(label string) bool { return label == "cpu" } // the probe's own sum
	sum, why := grown(n, "softnet", w, allCores, stem)
	if why != "" {
		m.lack(why, name)
		return
	}
	m.set(name, sum)
}

// addEfficiency relates goodput to what it cost.
func (m *measured) addEfficiency(p place) {
	rate, ok := m.values[goodput]
	if !ok {
		m.lack("there is no goodput", goodputPerCPU, goodputPerRouter, goodputPerWatt)
		return
	}
	// Bits per second ÷ CPU seconds per second.
	m.ratio(goodputPerCPU, rate, m.busy, "the CPU time of the host is unknown")
	why := p.why
	if p.own {
		why = "the CPU time of a router is unknown"
	}
	m.ratio(goodputPerRouter, rate, m.routers, why)
	watts, name := m.values["router_"+powerWatts], hostNode+"_"+powerWatts
	if watts <= 0 {
		watts = m.values[name]
	}
	if watts <= 0 {
		watts = p.watts
	}
	if why = m.missing[name]; why == "" {
		why = "no power source"
	}
	m.ratio(goodputPerWatt, rate, watts, why)
}

func (m *measured) ratio(name string, over, under float64, why string) {
	if under <= 0 {
		m.lack(why, name)
		return
	}
	m.set(name, over/under)
}
