package analysis

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/quick"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

const second = int64(1e9)

var (
	declaredFactors = quick.Catalogue
	designOf        = quick.Design
	inLab           = quick.InLab
	quickFactors    = quick.Factors
	syntheticRun    = quick.Run
)

// synthetic makes realistic trials: ten seconds of window after one of warm-up, on a machine of two cores,
// with noise from a fixed seed.
type synthetic struct {
	rng     *rand.Rand
	seconds int64
}

func newSynthetic(seed uint64) *synthetic {
	return &synthetic{rand.New(rand.NewPCG(seed, 1)), 10}
}

// trial is one clean trial of a cell: rate is goodput in bit/s.
func (s *synthetic) trial(f record.Factors, block, index int, rate float64) record.Trial {
	origin := int64(index) * 100 * second
	start := origin + 3*second
	w := record.Window{Begin: start - second, Start: start, End: start + s.seconds*second}
	w.Stop = w.End + second/10
	t := record.Trial{
		Row: record.Row{
			Assignment: record.Assignment{
				Block:   block,
				Index:   index,
				Kind:    record.RowLoad,
				Factors: f,
			},
			ID: fmt.Sprintf("b%d-r%02d", block, index),
		},
		TrialHead: record.TrialHead{
			ID:      fmt.Sprintf("b%d-r%02d.1", block, index),
			Started: time.Unix(1700000000, 0).UTC(),
			Phases: []record.Phase{{Name: record.PhaseSetup, Start: origin, End: w.Begin},
				{Name: record.PhaseWindow, Start: w.Start, End: w.End}},
		},
		Run:     "r1",
		Attempt: 1,
		Status:  record.TrialOK,
		Origin:  origin,
		Ended:   w.Stop + second,
		Window:  w,
	}
	t.Path = s.path(f, rate)
	t.Traffic = s.traffic(f, w, rate)
	t.Loaded = s.latency(w, 2e6, 0.2e6)
	t.Nodes = s.nodes(w)
	return t
}

func (s *synthetic) idle(f record.Factors, block, index int) record.Trial {
	t := s.trial(f, block, index, 1e9)
	design := designOf(f)
	t.Row.Kind, t.Row.Factors = record.RowIdle, design.Path(f)
	t.Idle = s.latency(t.Window, 100e3, 10e3)
	t.Loaded = nil
	t.Traffic = nil
	return t
}

func (s *synthetic) path(f record.Factors, rate float64) *record.PathEvidence {
	mtu := factor.UnderlayMTU(f)
	device := "wan"
	if f["tunnel"] != "none" {
		device = "cp0"
		fmt.Sscan(f["mtu"], &mtu)
	}

	bytes := uint64(rate / 8 * float64(s.seconds) * 1.15)
	move := func(node, device, when, counter string, by uint64) record.CounterDelta {
		return record.CounterDelta{
			Node:    node,
			Device:  device,
			Counter: counter,
			Before:  1000,
			After: 1000 +
				by,
			When: when,
		}
	}
	e := &record.PathEvidence{
		Tunnel:       f["tunnel"],
		PathMTU:      mtu,
		WantMTU:      mtu,
		BytesOffered: 64000,
		Counters: []record.CounterDelta{
			move("router", device, "check", "rx_bytes", 70000), move("router", device, "check", "tx_bytes",
				900),
			move("router", device, "window", "rx_bytes", bytes), move("router", device, "window", "tx_bytes",
				bytes/40),
		},
	}
	n := 0
	fmt.Sscan(f["tunnels"], &n)
	for i := range n {
		device := fmt.Sprint("tun", i+1)
		share := bytes / uint64(n)
		e.Counters = append(e.Counters,
			move("client", device, "check", record.TunnelSent, 70000), move("client", device, "check",
				record.TunnelReceived, 900),
			move("client", device, "window", record.TunnelSent, share), move("client", device, "window",
				record.TunnelReceived, share/40))
	}

	return e
}

func (s *synthetic) traffic(f record.Factors, w record.Window, rate float64) *record.Traffic {
	streams := 1
	fmt.Sscan(f["streams"], &streams)
	tunnels := 0
	fmt.Sscan(f["tunnels"], &tunnels)
	directions := []string{f["direction"]}
	if f["direction"] == record.Both {
		directions = []string{record.Up, record.Down}
	}

	tr := &record.Traffic{
		Engine: "native",
		Load: record.Load{
			Protocol:  f["protocol"],
			Direction: f["direction"],
			Streams:   streams,
			Tunnels:   tunnels,
		},
		Ends: map[string]record.EndUsage{
			"near": {
				Node:      "client",
				UserNs:    second / 2,
				SystemNs:  4 * second,
				ThreadsNs: []int64{4 * second},
			},
			"far": {Node: "server", UserNs: second / 4, SystemNs: 3 * second},
		},
	}
	each := rate / float64(streams*len(directions))
	for _, d := range directions {
		for i := range streams {
			tr.Flows = append(tr.Flows, s.flow(f, w, i, d, each))
		}
	}

	return tr
}

func (s *synthetic) flow(f record.Factors, w record.Window, i int, direction string,
	rate float64) record.Flow {
	series := record.NewTable("bytes")
	sum := 0.0
	atStart := 0.0
	atEnd := 0.0
	for at := w.Begin; at <= w.Stop; at += second / 10 {
		series.Append(at, sum)
		if at == w.Start {
			atStart = sum
		}

		if at == w.End {
			atEnd = sum
		}

		sum += rate / 80 * (1 + 0.02*s.rng.NormFloat64())
	}

	flow := record.Flow{
		Stream:        i,
		Direction:     direction,
		ReceivedBytes: int64(atEnd - atStart),
		SentBytes:     int64(atEnd - atStart),
		SenderNs:      w.End - w.Start,
		ReceiverNs:    w.End - w.Start,
		Received:      series,
	}
	if f["protocol"] == "udp" {
		size := 64
		fmt.Sscan(f["packet_size"], &size)
		n := flow.ReceivedBytes / int64(size-28)
		flow.Packets = &record.Packets{
			Sent:       n + 100,
			Received:   n,
			Lost:       100,
			Size:       size,
			Duplicates: new(int64),
			Reordered:  new(int64),
		}
		return flow
	}

	window := w.End - w.Start
	flow.TCP = &record.TCP{
		Congestion:    "cubic",
		MSS:           1448,
		Retransmits:   new(int64(3)),
		BusyNs:        window,
		RwndLimitedNs: window / 10,
		MinRTTNs:      50e3,
	}
	flow.TCP.Series = record.NewTable("rtt_ns", "cwnd_segments")
	for at := w.Start; at < w.End; at += second / 10 {
		flow.TCP.Series.Append(at, 1.9e6+1e5*s.rng.NormFloat64(), 400)
	}

	return flow
}

// latency is a probe every 10 ms with a lognormal tail.
func (s *synthetic) latency(w record.Window, median, spread float64) *record.Latency {
	l := &record.Latency{IntervalNs: 10e6, Size: 64, Stamps: "kernel"}
	for at := w.Start; at < w.End; at += l.IntervalNs {
		v := median + spread*s.rng.ExpFloat64()
		l.RTT = append(l.RTT, int64(v))
		l.UserRTT = append(l.UserRTT, int64(v)+60e3)
		l.SentAt = append(l.SentAt, at+80e3)
		l.Late = append(l.Late, 80e3+int64(20e3*s.rng.Float64()))
	}
	return l
}

func (s *synthetic) nodes(w record.Window) map[string]record.NodeData {
	names := []string{}
	for c := range 2 {
		for _, state := range []string{"user_ns", "nice_ns", "system_ns", "idle_ns", "iowait_ns", "irq_ns",
			"softirq_ns", "steal_ns"} {
			names = append(names, fmt.Sprintf("cpu%d/%s", c, state))
		}
	}

	cpu := record.NewTable(names...)
	netdev := record.NewTable("wan/rx_bytes", "wan/rx_dropped", "wan/tx_dropped", "lo/rx_dropped")
	link := record.NewTable("wan/carrier_changes")
	softnet := record.NewTable("cpu/dropped", "cpu/time_squeeze", "cpu0/dropped", "cpu1/dropped")
	foreign := record.NewTable("foreign_cpu_ns")
	thermal := record.NewTable("thermal_zone0.x86/temperature_c", "cpu0/core_throttles",
		"cooling0.Fan/cooling_state", "cooling1.Processor/cooling_state")
	for i, at := 0, w.Begin-second/20; at <= w.Stop+second/10; i, at = i+1, at+second/10 {
		n := float64(i) * 1e8
		cpu.Append(at,
			n*.05, 0, n*.40, n*.20, 0, 0, n*.34, n*.01,
			n*.05, 0, n*.50, n*.10, 0, 0, n*.34, n*.01)
		netdev.Append(at, n, 5, 7, 100)
		link.Append(at, 3)
		softnet.Append(at, 4, float64(i)*.5, 1, 3)
		foreign.Append(at, n*.02)
		thermal.Append(at, 50, 12, 3, 0)
	}

	samples := func(probe string, t *record.Table) record.Samples {
		return record.Samples{Probe: probe, Scope: record.ScopeHost, Table: t}
	}
	cost := []record.Cost{{Probe: "cpu", Reads: 100, CPUNs: 5e6, MedianNs: 4e4, OverNs: 10 * second},
		{Probe: "netdev", Reads: 100, CPUNs: 2e6, OverNs: 10 * second}}
	return map[string]record.NodeData{
		"host": {
			Samples: []record.Samples{samples("cpu", cpu), samples("softnet", softnet),
				samples("foreign", foreign),
				samples("thermal", thermal), {
					Probe:       "power",
					Unavailable: "no RAPL and no hwmon power sensor",
				}},
			Cost: cost,
			Log:  []record.LogLine{{At: w.Start + second, Severity: 6, Text: "cp0: link becomes ready"}},
		},
		"router": {Samples: []record.Samples{samples("netdev", netdev), samples("link", link),
			{Probe: "qdisc", Table: record.NewTable()},
			{Probe: "conntrack", Unavailable: "nf_conntrack is not loaded"}}},
	}
}

// quickRun is a small run like the quick plan, with n blocks.
func quickRun(n int) (record.Run, []record.Trial) {
	s := newSynthetic(42)
	cells := []record.Factors{
		quickFactors(), quickFactors("streams", "4"), quickFactors("tunnel", "wireguard"),
		quickFactors("tunnel", "wireguard", "streams", "4"), quickFactors("nat", "masquerade"),
		quickFactors("protocol", "udp"), quickFactors("direction", "both"),
	}
	rates := []float64{5.8e9, 10e9, 1.04e9, 1.1e9, 5.5e9, 120e6, 8e9}
	var trials []record.Trial
	index := 0
	for block := 1; block <= n; block++ {
		for _, path := range []record.Factors{cells[0], cells[2], cells[4]} {
			index++
			trials = append(trials, s.idle(path, block, index))
		}

		for i, c := range cells {
			index++
			trials = append(trials, s.trial(c, block, index, rates[i]*(1+.01*s.rng.NormFloat64())))
		}
	}

	return syntheticRun(cells...), trials
}
