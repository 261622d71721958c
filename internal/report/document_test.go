package report

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/comparison"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/registry/node"
)

// cellPlan is one cell of the document that the tests lay out: what a run of quick on a small virtual
// machine looks like.
type cellPlan struct {
	factors  record.Factors
	label    string
	bps      float64 // TCP
	pps      float64 // UDP
	loss     float64
	idle     float64 // ns
	p50, p99 float64 // loaded, ns
	retrans  float64
	core     float64
	word     string
	wobble   float64 // relative
}

func base(changes ...string) record.Factors {
	f := record.Factors{"topology": "forward", "tunnel": "none", "ip": "4", "nat": "off", "offload": "wire",
		"protocol": "tcp", "streams": "1", "direction": "up", "congestion": "cubic", "engine": "native"}
	for i := 0; i+1 < len(changes); i += 2 {
		f[changes[i]] = changes[i+1]
	}
	return f
}

func quickCells() []cellPlan {
	return []cellPlan{
		{base(), "no tunnel · TCP · 1 stream · up", 5.81e9, 0, 0, 9.1e3, 412e3, 1.9e6, 12, .97, "Very good", .02},
		{base("direction", "down"), "no tunnel · TCP · 1 stream · down", 5.64e9, 0, 0, 9.1e3, 431e3, 2.1e6, 9, .96,
			"Good", .03},
		{base("streams", "4"), "no tunnel · TCP · 4 streams · up", 10.1e9, 0, 0, 9.1e3, 1.21e6, 3.4e6, 148, 1, "Good",
			.03},
		{base("streams", "4", "direction", "down"), "no tunnel · TCP · 4 streams · down", 9.84e9, 0, 0, 9.1e3, 1.3e6,
			3.9e6, 171, 1, "Fair", .05},
		{base("tunnel", "wireguard", "mtu", "1420"), "wireguard · TCP · 1 stream · up", 1.05e9, 0, 0, 61e3, 3.2e6,
			7.8e6, 41, .99, "Good", .03},
		{base("tunnel", "wireguard", "mtu", "1420", "direction", "down"), "wireguard · TCP · 1 stream · down", 1.02e9,
			0, 0, 61e3, 3.4e6, 8.2e6, 52, .99, "Good", .03},
		{base("tunnel", "wireguard", "mtu", "1420", "streams", "4"), "wireguard · TCP · 4 streams · up", 1.11e9, 0, 0,
			61e3, 9.7e6, 21e6, 310, 1, "Poor", .08},
		{base("tunnel", "wireguard", "mtu", "1420", "streams", "4", "direction", "down"),
			"wireguard · TCP · 4 streams · down", 1.08e9, 0, 0, 61e3, 10.2e6, 24e6, 287, 1, "Fair", .05},
		{base("nat", "masquerade"), "no tunnel · TCP · 1 stream · up · masquerade", 5.43e9, 0, 0, 9.1e3, 440e3,
			2.2e6, 15, .98, "Good", .03},
		{base("protocol", "udp", "packet_size", "64"), "no tunnel · UDP · 1 stream · up · 64 B", 53.7e6, 239.8e3,
			.0131, 9.1e3, 118e3, .64e6, 0, 1, "Good", .02},
	}
}

// sampleFactors returns those of the samples' cells.
func sampleFactors() *factor.Catalogue {
	return &factor.Catalogue{Factors: slices.Concat(factor.Base(factor.Options{
		Shapes:      []factor.Shape{{Name: "forward"}, {Name: "direct"}},
		Tunnels:     []string{factor.NoTunnel, "wireguard", "wireguard-userspace", "esp"},
		Engines:     []string{"native"},
		Congestions: []string{"cubic", "bbr"},
	}), knob.Factors(node.Knobs()))}
}

// sampleDocument is a whole run of quick with three blocks.
func sampleDocument() *analysis.Document {
	return documentOf(quickCells(), 3)
}

func documentOf(plans []cellPlan, blocks int) *analysis.Document {
	r := rand.New(rand.NewPCG(7, 7))
	start := time.Date(2026, 11, 21, 15, 30, 12, 0, time.UTC)
	d := &analysis.Document{
		Format:    record.Format,
		Catalogue: sampleFactors(),
		Run: analysis.RunHead{
			RunHead: record.RunHead{
				ID:      "20261121-153012-4f2a",
				Started: start,
				Ended:   start.Add(79 * time.Second),
				Lab:     "local",
				LabNote: "as root",
				Status:  record.RunDone,
				Command: "chokepoint run quick --set method.seed=8812739501134",
				Version: "0.1.0",
			},
			Procedure: record.Procedure{
				Method: record.Method{
					Duration: 2 * time.Second,
					Warmup:   400 * time.Millisecond,
					Runs:     blocks,
					Order:    "blocks",
					Seed:     8812739501134,
				},
				Loads: []string{"congestion", "direction", "engine",
					"packet_size", "protocol", "rate",
					"streams"},
			},
			Plan: "quick",
			Description: "this machine acting as a router: plain forwarding and WireGuard, " +
				"in about 70 seconds",
		},
		Summary: []string{
			"This machine acting as a router forwards 5.81 Gbit/s of TCP with one stream, and 1.05 Gbit/s " +
				"of it through WireGuard: 18.1 % of the same without tunnel.",
			"Four streams reach 10.1 Gbit/s without tunnel and 1.11 Gbit/s through WireGuard, where one " +
				"core was busy all the time.",
			"64-byte UDP packets: 240 kpps arrived, 1.31 % were lost.",
			"Load raises the median round trip from 9.10 µs to 412 µs without tunnel and from 61.0 µs to " +
				"3.20 ms in WireGuard.",
		},
		Conditions: map[string]string{"ambient": "22 °C", "cooling": "passive", "watts read by hand": "31"},
		Topologies: []record.Topology{forwardTopology()},
		Nodes:      []record.NodeFacts{{Name: "router", CPUs: record.CPUsShared}},
		Metrics:    sampleMetrics(),
		Tester: []record.Ceiling{{Kind: "tcp loopback", Value: 21.4e9, Unit: "bit/s", Note: "one stream"},
			{Kind: "udp loopback 64 B", Value: 611e3, Unit: "pps"}},
		Observing: analysis.Observing{
			CoreRatio:    .0061,
			ChargedRatio: .0072,
			FastRatio:    .0027,
			Probes: map[string]float64{"cpu": .0009, "softirqs": .0007, "interfaces": .0006,
				"thermal": .0021},
		},
		Skipped: []record.Skipped{{
			Factors: base("queue", "cake"),
			Reason:  "this kernel has no sch_cake: operation not supported",
		}},
		Caveats: []record.Caveat{
			{
				Kind: "few-runs",
				Text: "three runs of each cell give no confidence interval: ranges " +
					"are shown instead",
			},
			{
				Kind: "shared-cores",
				Text: "client, router, server and load generators share the cores of " +
					"this machine; a real router has its own",
			}},
		Environment: []record.Environment{{
			Node: "host",
			Facts: map[string]string{"kernel": "6.1.0-18-amd64", "cpu_model": "AMD EPYC 7B13",
				"cpu_cores":   "4",
				"clocksource": "kvm-clock", "mitigations:spectre_v2": "Mitigation: Retpolines",
				"sysctl:net.core.rmem_max": "212992"},
			Missing: map[string]string{"governor": "no cpufreq in this machine"},
		}},
		Thresholds: []comparison.Threshold{
			{
				Requirement: "goodput >= 1G where tunnel=wireguard",
				Factors:     plans[min(4, len(plans)-1)].factors,
				Metric:      "goodput_bps",
				Op:          ">=",
				Limit:       1e9,
				Met:         true,
				Value:       1.05e9,
			}},
	}
	for i, p := range plans {
		d.Cells = append(d.Cells, p.cell(r, blocks))
		for b := range blocks {
			d.Trials = append(d.Trials, p.trial(r, d, i, b, len(plans)))
		}
	}

	for b := range blocks {
		d.Trials = append(d.Trials, idleTrial(r, d, b, "none", 9.1e3), idleTrial(r, d, b, "wireguard", 61e3))
	}

	slices.SortStableFunc(d.Trials, func(a, b analysis.TrialView) int { return a.Index - b.Index })
	d.Comparisons = comparisons(d)
	diagnose(d)
	return d
}

// sampleMetrics declares some of the metrics; the others tell their unit by their name.
func sampleMetrics() []record.Metric {
	m := func(name, unit, scope, doc string) record.Metric {
		better := record.Lower
		if name == goodput || name == packetRate {
			better = record.Higher
		}
		return record.Metric{Name: name, Unit: unit, Better: better, Scope: scope, Doc: doc}
	}
	return []record.Metric{
		m("goodput_bps", "bit/s", record.ScopePath,
			"payload that arrived in the window ÷ the receiver's window"),
		m("packet_rate_pps", "pps", record.ScopePath, "UDP packets that arrived in the window, per second"),
		m("loss_ratio", "ratio", record.ScopePath,
			"UDP packets of the window that never arrived ÷ those sent"),
		m("retransmits", "count", record.ScopeFlow, "TCP segments sent again in the window, all flows"),
		m("rtt_idle_p50_ns", "ns", record.ScopePath, "round-trip time of a probe on the idle path, p50"),
		m("rtt_loaded_p50_ns", "ns", record.ScopePath, "round-trip time of a probe beside the load, p50"),
		m("host_busiest_core_ratio", "ratio", record.ScopeHost,
			"share of the window in which the busiest core was busy"),
	}
}

func forwardTopology() record.Topology {
	ports := func(a, ap, b, bp string) [2]record.TopoPort {
		return [2]record.TopoPort{{Node: a, Port: ap}, {Node: b, Port: bp}}
	}
	return record.Topology{
		Name:    "forward",
		Near:    "client",
		Far:     "server",
		Tunnel:  [2]string{"client", "router"},
		Routers: []string{"router"},
		Nodes:   []record.TopoNode{{Name: "client"}, {Name: "router", Router: true}, {Name: "server"}},
		Links: []record.TopoLink{{Name: "lan", Ends: ports("client", "lan", "router", "lan")},
			{Name: "wan", Ends: ports("router", "wan", "server", "wan")}},
	}
}

// valueOf spreads n values around a median.
func valueOf(r *rand.Rand, median, wobble float64, n int) statistics.Value {
	v := statistics.Value{Spread: statistics.Spread{N: n, Interval: statistics.IntervalRange}}
	for range n {
		v.Values = append(v.Values, median*(1+wobble*(2*r.Float64()-1)))
	}

	v.Values[n/2] = median
	s := slices.Sorted(slices.Values(v.Values))
	v.Median = s[n/2]
	v.Low = s[0]
	v.High = s[n-1]
	switch {
	case n == 1:
		v.Interval = statistics.IntervalSingle
		v.Low = 0
		v.High = 0
	case n >= 6:
		v.Interval, v.Level = statistics.IntervalOrder, 1-2*math.Pow(.5, float64(n))
	}

	return v
}

func (p cellPlan) cell(r *rand.Rand, n int) analysis.Cell {
	c := analysis.Cell{
		Cell: metrics.Cell{
			ID:      p.factors.ID(),
			Factors: p.factors,
			Label:   p.label,
			Grade:   evidence.GradeValid,
			Metrics: map[string]statistics.Value{},
			Missing: map[string]string{
				"router_busiest_core_ratio": "in lab local all roles share the cores of the host",
				"host_power_w":              "no RAPL and no hwmon power sensor in this machine"},
		},
		Runs: n,
		Ceiling: analysis.CellCeiling{
			Kind:             "none: virtual link",
			HeaderEfficiency: .9415,
			TesterRatio:      p.bps / 21.4e9,
			TesterKind:       "tcp loopback",
		},
		Consistency: &analysis.Consistency{Word: p.word, Ratio: p.wobble},
	}
	set := func(name string, median, wobble float64) { c.Metrics[name] = valueOf(r, median, wobble, n) }
	set("goodput_bps", p.bps, p.wobble)
	set("rtt_idle_p50_ns", p.idle, .02)
	set("rtt_idle_p99_ns", p.idle*2.3, .1)
	set("rtt_loaded_p50_ns", p.p50, .08)
	set("rtt_loaded_p99_ns", p.p99, .15)
	set("host_busiest_core_ratio", p.core*.99, .01)
	set("probe_loss_ratio", 0, 0)
	if p.pps > 0 {
		set("packet_rate_pps", p.pps, p.wobble)
		set("loss_ratio", p.loss, .3)
		set("unsent_ratio", 0, 0)
		c.Ceiling.HeaderEfficiency = .333
		c.Ceiling.TesterRatio = p.pps / 611e3
		c.Ceiling.TesterKind = "udp loopback 64 B"
	} else {
		set("retransmits", p.retrans, .3)
		for i, x := range c.Metrics["retransmits"].Values {
			c.Metrics["retransmits"].Values[i] = math.Round(x)
		}

		v := c.Metrics["retransmits"]
		v.Low, v.Median, v.High = math.Round(v.Low), math.Round(v.Median), math.Round(v.High)
		c.Metrics["retransmits"] = v
	}

	if n < 6 {
		c.Caveats = append(c.Caveats, record.Caveat{
			Kind: "few-runs",
			Text: fmt.Sprintf("n = %d: the range is shown, not a confidence interval", n),
		})
	}

	if p.factors["tunnel"] == "wireguard" {
		c.Resolved = map[string]string{"tunnel": "wireguard-userspace"}
		c.Caveats = append(c.Caveats, record.Caveat{
			Kind: "userspace-tunnel",
			Text: "this kernel has no WireGuard: the userspace implementation was measured",
		})
	}

	if p.factors["streams"] == "4" && p.factors["tunnel"] == "none" && p.factors["direction"] == "up" {
		c.Grade = evidence.GradeSuspect
		c.Reasons = []evidence.Reason{{
			Kind:  evidence.ReasonTesterLimited,
			Text:  "the load generator's own thread was busy 97.1 % of the window on the client",
			Trial: "b2-r07.1",
		}}
	}

	if p.factors["streams"] == "4" && p.factors["tunnel"] == "wireguard" && p.factors["direction"] == "up" {
		c.Findings = []evidence.Finding{{
			Kind:       "single-core",
			Text:       "One core did nearly all of the packet work while the others waited.",
			Confidence: .82,
			Words: []string{"busiest core 100 %, mean of all cores 61 %",
				"four streams gain 5.7 % over one"},
		}}
	}

	return c
}

func (p cellPlan) trial(r *rand.Rand, d *analysis.Document, i, block, cells int) analysis.TrialView {
	c := d.Cells[i]
	index := block*(cells+2) + 2 + (i+block*3)%cells + 1
	t := analysis.TrialView{
		Row: fmt.Sprintf("b%d-r%02d", block+1, index),
		Assignment: record.Assignment{
			Block:   block + 1,
			Index:   index,
			Kind:    record.RowLoad,
			Factors: c.Factors,
		},
		TrialHead: record.TrialHead{
			Started:  d.Run.Started.Add(time.Duration(index) * 2500 * time.Millisecond),
			Resolved: c.Resolved,
			Path: &record.PathEvidence{
				Tunnel:  c.Factors["tunnel"],
				PathMTU: 1500,
				WantMTU: 1500,
				Counters: []record.CounterDelta{{
					Node:    "router",
					Device:  "lan",
					Counter: "rx_bytes",
					Before:  10,
					After:   4010,
					When:    "check",
				}},
			},
		},
		Seconds: 2.6,
		Grade:   evidence.GradeValid,
		Metrics: map[string]float64{},
		Missing: c.Missing,
	}
	t.ID = t.Row + ".1"
	for name, v := range c.Metrics {
		t.Metrics[name] = v.Values[block]
	}

	t.Series = p.series(r, t.Metrics["goodput_bps"])
	return t
}

func (p cellPlan) series(r *rand.Rand, bps float64) *analysis.Series {
	s := &analysis.Series{
		Cores: map[string][]*float64{},
		Quantile: map[string][]float64{
			"loaded": quantilesLike(r, p.p50, p.p99, 10)},
	}
	for i := range 25 {
		at := -.4 + float64(i+1)*.1
		s.T = append(s.T, math.Round(at*1e4)/1e4)
		ramp := 1 - math.Exp(-float64(i+1)/2)
		s.Goodput = append(s.Goodput, math.Round(bps*ramp*(1+p.wobble*r.NormFloat64())))
	}

	for k := range 4 {
		var v []*float64
		for range 25 {
			x := math.Min(1, math.Max(0, p.core-.22*float64(k)+.06*r.NormFloat64()))
			v = append(v, &x)
		}

		s.Cores[fmt.Sprintf("host/cpu%d", k)] = v
	}

	return s
}

// quantilesLike makes the first n quantiles of a skewed distribution.
func quantilesLike(r *rand.Rand, p50, p99 float64, n int) []float64 {
	var q []float64
	last := 0.0
	for _, level := range analysis.QuantileLevels[:n] {
		x := p50 * math.Pow(p99/p50, math.Max(-.7, nines(level)-nines(.5))/(nines(.99)-nines(.5))) * (1 +
			.03*r.NormFloat64())
		last = math.Max(last, x)
		q = append(q, math.Round(last))
	}

	return q
}

func idleTrial(r *rand.Rand, d *analysis.Document, block int, tunnel string, p50 float64) analysis.TrialView {
	f := base("tunnel", tunnel)
	if tunnel != "none" {
		f["mtu"] = "1420"
	}

	index := block*(len(quickCells())+2) + map[string]int{"none": 1, "wireguard": 2}[tunnel]
	id := fmt.Sprintf("b%d-r%02d", block+1, index)
	return analysis.TrialView{
		Row: id,
		Assignment: record.Assignment{
			Block:   block + 1,
			Index:   index,
			Kind:    record.RowIdle,
			Factors: f,
		},
		TrialHead: record.TrialHead{
			ID:      id + ".1",
			Started: d.Run.Started.Add(time.Duration(index) * 2500 * time.Millisecond),
			Caveats: []record.Caveat{{Kind: "idle-caches", Text: "an idle path wakes sleeping cores"}},
		},
		Seconds: .6,
		Grade:   evidence.GradeValid,
		Metrics: map[string]float64{"rtt_idle_p50_ns": p50, "rtt_idle_p99_ns": 2.3 * p50},
		Series: &analysis.Series{
			T: []float64{},
			Quantile: map[string][]float64{"idle": quantilesLike(r, p50,
				2.3*p50, 10)},
		},
	}
}

func comparisons(d *analysis.Document) []comparison.Comparison {
	var out []comparison.Comparison
	at := map[string]*analysis.Cell{}
	for i := range d.Cells {
		at[d.Cells[i].Factors.Key()] = &d.Cells[i]
	}

	for i := range d.Cells {
		c := &d.Cells[i]
		if c.Factors["tunnel"] != "wireguard" {
			continue
		}

		f := c.Factors.Clone()
		f["tunnel"] = "none"
		delete(f, "mtu")
		if b := at[f.Key()]; b != nil {
			ratio := c.Metrics["goodput_bps"].Median / b.Metrics["goodput_bps"].Median
			out = append(out, comparison.Comparison{
				Spread: statistics.Spread{
					Low:      ratio * .96,
					High:     ratio * 1.03,
					N:        c.Runs,
					Interval: statistics.IntervalRange,
				},
				Metric:  "goodput_bps",
				Factors: c.Factors,
				Against: f,
				Name:    "of the same without tunnel",
				Ratio:   ratio,
				Verdict: "cannot tell: fewer than 6 pairs",
			})
		}
	}

	return out
}
