package metrics

import (
	"cmp"
	"math"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Measured holds the metrics of one trial, and the reasons for missing ones. No metric is in both maps.
type Measured struct {
	Values  map[string]float64
	Missing map[string]string
	RTTs    map[string][]float64 // keys are "idle" and "loaded"; answered probes, sorted
	// ClockFrom is the source of the clock of a cipher's CPU.
	ClockFrom string
	// Confidence is the confidence in Responsiveness, if there is one.
	Confidence string
	busy       float64 // sum of the busy shares of the host's cores; 0 = unknown
	routers    float64 // the same for the routers' own cores
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

// Measure computes the metrics of one successful trial.
func Measure(t *record.Trial, p place) *Measured {
	m := NewMeasured()
	if t.Traffic != nil {
		m.addGoodput(t.Traffic)
		m.addPackets(t.Traffic)
		m.addTCP(t.Traffic, t.Window)
		m.addEngine(t.Traffic)
		m.addConsistency(t)
		m.addResponsiveness(t)
		m.addShortFlows(t)
	} else if t.Row.Kind == record.RowLoad && t.Foreign == nil {
		m.Lack("the engine reported nothing", Goodput)
	}

	m.addCipher(t)
	m.addLatency(t)
	if t.Foreign != nil {
		for name, v := range t.Foreign.Values {
			m.Set(name, v)
		}

		m.Lack(t.Foreign.Tool+" told none", Goodput)
		return m
	}

	m.addNodes(t, p)
	m.addDrawn(t, p)
	if t.Row.Kind == record.RowLoad {
		m.addEfficiency(p)
	}

	return m
}

func (m *Measured) addGoodput(tr *record.Traffic) {
	up, down, err := tr.Goodput()
	if err != nil {
		m.Lack(err.Error(), Goodput)
		return
	}

	m.Set(Goodput, up+down)
	another := func(f record.Flow) bool { return f.Direction != tr.Flows[0].Direction }
	if slices.ContainsFunc(tr.Flows, another) {
		m.Set(GoodputUp, up)
		m.Set(GoodputDown, down)
	}
}

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
	for i := range tr.Flows {
		f := &tr.Flows[i]
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
	for i := range tr.Flows {
		p := tr.Flows[i].Packets
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

// addOneWay adds the one-way delays of the load's own packets, of both directions together.
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

// bucket is the number of times from fromNs up to the next bucket.
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

// kernelTick is the largest amount, in ns, by which a time that the kernel counts in jiffies may exceed the
// real one: a tick of Linux's slowest timer, 100 Hz.
const kernelTick = int64(10e6)

func (m *Measured) addTCP(tr *record.Traffic, w record.Window) {
	if tr.Load.Protocol != "tcp" {
		return
	}

	var again, busy, rwnd, sndbuf float64
	counted := true
	var rtts []float64
	least := math.Inf(1)
	for i := range tr.Flows {
		f := &tr.Flows[i]
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

// chronographs reports whether the engine's chronographs are meaningful. TCP with little to send is busy for
// less time than a jiffy, in which the kernel counts.
func chronographs(tr *record.Traffic) bool {
	return slices.ContainsFunc(tr.Flows, func(f record.Flow) bool {
		return f.TCP != nil && f.TCP.Series.Column("busy_ns") != nil
	})
}

func (m *Measured) addEngine(tr *record.Traffic) {
	if len(tr.Ends) == 0 {
		m.Lack("engine "+tr.Engine+" reports no CPU time", EngineCPU)
		return
	}

	if len(tr.Ends) < 2 {
		m.Lack("engine "+tr.Engine+" reports the CPU time of one end only", EngineCPU)
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
		m.Lack("the window is too short to check: it needs seven bins of 200 ms", Consistency)
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

	l := cmp.Or(t.Loaded, t.Idle)
	if late, ok := lateP99(l); ok {
		m.Set(ProbeLate, late)
	}

	if off, ok := spacingP99(l); ok {
		m.Set(probeSpacing, off)
	}
}

func (m *Measured) addNodes(t *record.Trial, p place) {
	if t.Cipher == nil && (t.Row.Kind != record.RowLoad || t.Traffic == nil) {
		return
	}

	w := t.Window
	if host, ok := t.Nodes[record.HostNode]; ok {
		m.addMachine(record.HostNode, host, w)
		ns, why := grown(host, "guests", w, nil, "guest_cpu_ns")
		m.setUnless(why, GuestsCPU, ns/float64(w.End-w.Start))
		allCores := func(label string) bool { return label == "cpu" } // the probe's own sum
		for name, stem := range map[string]string{softnetDrops: "dropped", SoftnetSqueeze: "time_squeeze"} {
			sum, why := grown(host, "softnet", w, allCores, stem)
			m.setUnless(why, name, sum)
		}
	} else {
		why := "nothing watched the host"
		if p.apart {
			why = "no machine carries all nodes"
			m.addEnds(t, p)
		}

		m.Lack(why, append(prefixed(record.HostNode, machineStems...), softnetDrops, SoftnetSqueeze,
			GuestsCPU)...)
	}

	m.addRouters(t, p)
}

// addEnds adds endStems for both ends of the path, each of which is a separate machine.
func (m *Measured) addEnds(t *record.Trial, p place) {
	for _, end := range p.ends {
		one := NewMeasured()
		one.addMachine(end, t.Nodes[end], t.Window, p.sharing(t, end)...)
		for _, name := range prefixed(end, endStems...) {
			m.setUnless(one.Missing[name], name, one.Values[name])
		}
	}
}

// addEfficiency adds goodput per CPU time and per power.
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
	m.ratio(GoodputPerWatt, rate, m.Values[PowerLoaded], cmp.Or(m.Missing[PowerLoaded], "the power is 0 W"))
}

func (m *Measured) ratio(name string, over, under float64, why string) {
	if under > 0 {
		why = ""
	}

	m.setUnless(why, name, over/under)
}

// setUnless sets a value, or the reason why it is missing.
func (m *Measured) setUnless(why, name string, v float64) {
	if why != "" {
		m.Lack(why, name)
		return
	}

	m.Set(name, v)
}

// Received returns one curve of received bytes for each flow whose receiver has a series. all reports whether
// all flows have one.
func Received(tr *record.Traffic) (curves []statistics.Curve, all bool) {
	if tr == nil {
		return nil, false
	}

	all = len(tr.Flows) > 0
	for i := range tr.Flows {
		table := tr.Flows[i].Received
		var c statistics.Curve
		v := table.Column("bytes")
		if v != nil {
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
