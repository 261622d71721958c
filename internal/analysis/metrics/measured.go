package metrics

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Measured collects the numbers of one trial, and why others are missing. The two never hold the same name.
type Measured struct {
	Values  map[string]float64
	Missing map[string]string
	RTTs    map[string][]float64 // "idle", "loaded": answered probes, sorted
	busy    float64              // busy cores of the host in the window, all together; 0 = unknown
	routers float64              // the same of the routers' own cores
}

func NewMeasured() *Measured {
	return &Measured{Values: map[string]float64{}, Missing: map[string]string{}, RTTs: map[string][]float64{}}
}

func (m *Measured) Set(name string, v float64) {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		m.Lack("not a number", name)
		return
	}
	m.Values[name] = v
	delete(m.Missing, name)
}

func (m *Measured) Lack(why string, names ...string) {
	for _, n := range names {
		if _, ok := m.Values[n]; !ok {
			m.Missing[n] = why
		}
	}
}

// Measure computes the metrics of one trial that ended well.
func Measure(t *record.Trial, p place) *Measured {
	m := NewMeasured()
	if t.Traffic != nil {
		m.addGoodput(t.Traffic)
		m.addPackets(t.Traffic)
		m.addTCP(t.Traffic)
		m.addEngine(t.Traffic)
		m.addConsistency(t)
		m.addResponsiveness(t)
		m.addShortFlows(t)
	} else if t.Row.Kind == record.RowLoad {
		m.Lack("the engine reported nothing", Goodput)
	}
	m.addLatency(t)
	m.addNodes(t, p)
	if t.Row.Kind == record.RowLoad {
		m.addEfficiency(p)
	}
	return m
}

func (m *Measured) addGoodput(tr *record.Traffic) {
	byDirection := map[string]float64{}
	for i := range tr.Flows {
		f := &tr.Flows[i]
		if f.ReceiverNs <= 0 {
			m.Lack("the receiver reported no window", Goodput)
			return
		}
		byDirection[f.Direction] += float64(f.ReceivedBytes) * 8 / (float64(f.ReceiverNs) / 1e9)
	}
	if len(tr.Flows) == 0 {
		m.Lack("the engine reported no flow", Goodput)
		return
	}
	sum := 0.0
	for _, d := range slices.Sorted(maps.Keys(byDirection)) {
		sum += byDirection[d]
	}
	m.Set(Goodput, sum)
	if len(byDirection) > 1 {
		m.Set(GoodputUp, byDirection[record.Up])
		m.Set(GoodputDown, byDirection[record.Down])
	}
}

func (m *Measured) addPackets(tr *record.Traffic) {
	names := []string{PacketRate, offeredRate, LossRatio, UnsentRatio, duplicates, reordered, delayVariation,
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
			m.Lack("engine "+tr.Engine+" does not count packets", names...)
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
	m.Set(PacketRate, rate)
	m.Set(offeredRate, offered)
	m.setSeen(duplicates, twice)
	m.setSeen(reordered, late)
	m.addPacketDelays(tr)
	m.addOneWay(tr)
	if sum.Sent == 0 {
		m.Lack("nothing was sent", LossRatio, UnsentRatio)
		return
	}
	intended := float64(sum.Sent + sum.Unsent)
	m.Set(LossRatio, float64(sum.Lost+sum.Unsent)/intended)
	m.Set(UnsentRatio, float64(sum.Unsent)/intended)
}

// addPacketDelays is for flows whose packets were looked at one by one.
func (m *Measured) addPacketDelays(tr *record.Traffic) {
	const quantile = .99
	var all []record.DelayCount
	packets, gap := int64(0), int64(0)
	for i := range tr.Flows {
		p := tr.Flows[i].Packets
		if p.Delay == nil {
			m.Lack("this way of counting packets does not see them", delayVariation, longestGap)
			return
		}
		for _, c := range p.Delay.Counts {
			all, packets = append(all, c), packets+c.Packets
		}
		for _, g := range p.Gaps {
			gap = max(gap, g.Length)
		}
	}
	m.Set(longestGap, float64(gap))
	slices.SortFunc(all, func(a, b record.DelayCount) int { return cmp.Compare(a.AboveNs, b.AboveNs) })
	left := int64(math.Ceil(quantile * float64(packets)))
	for _, c := range all {
		if left -= c.Packets; left <= 0 {
			m.Set(delayVariation, float64(c.AboveNs))
			return
		}
	}
	m.Lack("no packet arrived", delayVariation)
}

// seenBy adds up a count that some engines cannot see.
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

func (m *Measured) setSeen(name string, s seenBy) {
	why := ""
	if s.blind {
		why = "this way of counting packets does not see them"
	}
	m.setUnless(why, name, float64(s.sum))
}

func (m *Measured) addTCP(tr *record.Traffic) {
	names := []string{Retransmits, rttTCP, minRTTTCP, busyRatio, RwndLimited, sndbufLimited, NetworkLimited}
	if tr.Load.Protocol != "tcp" {
		return
	}
	var again, busy, rwnd, sndbuf float64
	var rtts []float64
	least := math.Inf(1)
	for i := range tr.Flows {
		f := &tr.Flows[i]
		if f.TCP == nil || f.SenderNs <= 0 {
			m.Lack("engine "+tr.Engine+" reports no TCP_INFO", names...)
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
	m.Set(Retransmits, again)
	m.Lack("engine "+tr.Engine+" reports no series of TCP_INFO", rttTCP, minRTTTCP)
	if len(rtts) > 0 {
		m.Set(rttTCP, statistics.Median(rtts))
	}
	if !math.IsInf(least, 1) {
		m.Set(minRTTTCP, least)
	}
	if busy == 0 {
		m.Lack("engine "+tr.Engine+" reports no TCP chronographs", busyRatio, RwndLimited, sndbufLimited,
			NetworkLimited)
		return
	}
	m.Set(busyRatio, busy)
	m.Set(RwndLimited, rwnd)
	m.Set(sndbufLimited, sndbuf)
	m.Set(NetworkLimited, math.Max(busy-rwnd-sndbuf, 0))
}

func (m *Measured) addEngine(tr *record.Traffic) {
	if len(tr.Ends) == 0 {
		m.Lack("engine "+tr.Engine+" reports no CPU time", EngineCPU)
		return
	}
	ns := int64(0)
	for _, u := range tr.Ends {
		ns += u.UserNs + u.SystemNs
	}
	m.Set(EngineCPU, float64(ns)/1e9)
}

func (m *Measured) addConsistency(t *record.Trial) {
	curves, all := Received(t.Traffic)
	if !all {
		m.Lack("the engine gave no interval series for every flow", Consistency)
		return
	}
	r, ok := statistics.WindowEvenness(curves, t.Window.Start, t.Window.End)
	if !ok {
		m.Lack("the window is too short to judge: it needs eight bins of 200 ms", Consistency)
		return
	}
	m.Set(Consistency, r)
}

func (m *Measured) addLatency(t *record.Trial) {
	for _, p := range []struct {
		kind, loss string
		l          *record.Latency
	}{{"idle", ProbeLossIdle, t.Idle}, {"loaded", ProbeLoss, t.Loaded}} {
		if p.l == nil || len(p.l.RTT) == 0 {
			continue
		}
		m.Set(p.loss, lostShare(p.l))
		sorted := Answered(p.l)
		m.RTTs[p.kind] = sorted
		for _, q := range Percentiles {
			if statistics.Carries(len(sorted), q.Level) {
				m.Set(RTT(p.kind, q), statistics.QuantileSorted(sorted, q.Level))
				continue
			}
			m.Lack(TooFewProbes(len(sorted), q), RTT(p.kind, q))
		}
	}
	l := t.Loaded
	if l == nil {
		l = t.Idle
	}
	if late, ok := lateP99(l); ok {
		m.Set(ProbeLate, late)
	}
	if off, ok := spacingP99(l); ok {
		m.Set(probeSpacing, off)
	}
}

func (m *Measured) addNodes(t *record.Trial, p place) {
	if t.Row.Kind != record.RowLoad || t.Traffic == nil {
		return
	}
	w := t.Window
	stems := []string{CPURatio, busiestCore, softirqCore, StealRatio, ForeignRatio, powerWatts, Temperature,
		loopRate}
	if host, ok := t.Nodes[record.HostNode]; !ok {
		m.Lack(p.noHost(), append(prefixed(record.HostNode, stems...), softnetDrops, SoftnetSqueeze,
			GuestsCPU)...)
	} else {
		m.AddCPU(record.HostNode, host, w)
		m.AddForeign(record.HostNode, host, w)
		m.addPower(record.HostNode, host, w)
		m.addTemperature(record.HostNode, host, w)
		m.addLoopRate(record.HostNode, host, w)
		ns, why := grown(host, "guests", w, nil, "guest_cpu_ns")
		m.setUnless(why, GuestsCPU, ns/float64(w.End-w.Start))
		allCores := func(label string) bool { return label == "cpu" } // the probe's own sum
		sum, why := grown(host, "softnet", w, allCores, "dropped")
		m.setUnless(why, softnetDrops, sum)
		sum, why = grown(host, "softnet", w, allCores, "time_squeeze")
		m.setUnless(why, SoftnetSqueeze, sum)
	}
	m.addRouters(t, p)
}

// addEfficiency relates goodput to what it cost.
func (m *Measured) addEfficiency(p place) {
	rate, ok := m.Values[Goodput]
	if !ok {
		m.Lack("there is no goodput", GoodputPerCPU, GoodputPerRouter, GoodputPerWatt)
		return
	}
	// Bits per second ÷ CPU seconds per second.
	m.ratio(GoodputPerCPU, rate, m.busy, "the CPU time of the host is unknown")
	why := p.why
	if p.own {
		why = "the CPU time of a router is unknown"
	}
	m.ratio(GoodputPerRouter, rate, m.routers, why)
	watts, name := m.Values["router_"+powerWatts], record.HostNode+"_"+powerWatts
	if watts <= 0 {
		watts = m.Values[name]
	}
	if watts <= 0 {
		watts = p.watts
	}
	if why = m.Missing[name]; why == "" {
		why = "no power source"
	}
	m.ratio(GoodputPerWatt, rate, watts, why)
}

func (m *Measured) ratio(name string, over, under float64, why string) {
	if under > 0 {
		why = ""
	}
	m.setUnless(why, name, over/under)
}

// setUnless sets a value, unless there is a reason for its absence.
func (m *Measured) setUnless(why, name string, v float64) {
	if why != "" {
		m.Lack(why, name)
		return
	}
	m.Set(name, v)
}

// Received returns one curve of bytes per flow that has a series at its receiver, and whether all flows
// have one.
func Received(tr *record.Traffic) (curves []statistics.Curve, all bool) {
	if tr == nil {
		return nil, false
	}
	all = len(tr.Flows) > 0
	for i := range tr.Flows {
		table := tr.Flows[i].Received
		var c statistics.Curve
		if v := table.Column("bytes"); v != nil {
			c = statistics.NewCurve(table.T, v)
		}
		if len(c.T) < 2 {
			all = false
			continue
		}
		curves = append(curves, c)
	}
	return curves, all
}
