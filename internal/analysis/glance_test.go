package analysis

import (
	"math"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/diagnosis"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// routerSamples returns those of a router with two cores for ten seconds: what the first is busy with is
// given, as a share of its time, and the second idles.
func routerSamples(softirq float64) record.NodeData {
	cpu := record.NewTable("cpu0/user_ns", "cpu0/softirq_ns", "cpu0/idle_ns", "cpu1/user_ns",
		"cpu1/softirq_ns", "cpu1/idle_ns")
	net := record.NewTable("lo/rx_bytes", "lan/rx_bytes", "lan/rx_packets", "wan/tx_bytes", "wan/tx_packets",
		"wan/tx_dropped", "tun0/rx_bytes")
	queue := record.NewTable("wan/drops", "wan/backlog_bytes", "wan@1:10/backlog_bytes", "eth9/backlog_bytes")
	power := record.NewTable("intel-rapl-mmio:0.package-0/energy_j", "intel-rapl:0.package-0/energy_j",
		"intel-rapl:0:0.core/energy_j")
	heat := record.NewTable("zone0.cpu/temperature_c", "hwmon0.k/temperature_c")
	for i := range 11 {
		at := int64(i) * 1e9
		n := float64(i)
		cpu.Append(at, n*.005e9, n*softirq*1e9, n*(.995-softirq)*1e9, n*.01e9, 0, n*.99e9)
		net.Append(at, n*1e6, n*125e6, n*1e5, n*125e6, n*1e5, n*10, 0)
		queue.Append(at, n*5, 3000, 5000, 9e6)
		power.Append(at, n*20, n*20, n*15)
		heat.Append(at, 40, 61)
	}

	return record.NodeData{
		Samples: []record.Samples{
			{Probe: "cpu", Scope: record.ScopeHost, Table: cpu},
			{Probe: "netdev", Scope: record.ScopeNode, Table: net},
			{Probe: "qdisc", Scope: record.ScopeNode, Table: queue},
			{Probe: "thermal", Scope: record.ScopeHost, Table: heat},
			{Probe: "power", Scope: record.ScopeHost, Table: power}},
		Cost: []record.Cost{{Probe: "cpu", CPUNs: 2e7, OverNs: 1e10}},
	}
}

// TestLookAt: a glance has each core's shares, the rates of what passes, and a candidate where one core is
// full with softirq while another idles; it has none where nothing is full.
func TestLookAt(t *testing.T) {
	node := record.NodeFacts{
		Name:      "router",
		Driven:    record.DrivenByAgent,
		OwnKernel: true,
		CPUs:      record.CPUsOwn,
		Clock:     record.ClockRelated,
	}
	g := LookAt(node, routerSamples(.99), 1e9, 9e9)
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > .01*math.Abs(want)+1e-9 {
			t.Errorf("%s: got %v, want %v", what, got, want)
		}
	}
	if len(g.Cores) != 2 || len(g.Devices) != 2 || g.TemperatureC == nil || g.PowerW == nil {
		t.Fatalf("got %+v", g)
	}

	near("seconds", g.Seconds, 8)
	near("busy", g.Cores[0].Busy, .995)
	near("softirq", g.Cores[0].Softirq, .99)
	near("temperature", *g.TemperatureC, 61)
	near("power of a package that is shown twice", *g.PowerW, 20)
	near("observing", *g.ObservingRatio, .002)
	lan := g.Devices[0]
	wan := g.Devices[1]
	if lan.Name != "lan" || wan.Name != "wan" {
		t.Fatalf("devices: got %+v", g.Devices)
	}

	near("in", lan.RxBps, 1e9)
	near("packets out", wan.TxPps, 1e5)
	near("drops", wan.DropPs, 15)
	near("the longest queue", wan.QueueBytes, 5000)
	near("no queue", lan.QueueBytes, 0)
	c := g.Candidate
	if c == nil || c.Class != diagnosis.SoftirqOneCore || c.Confidence < .5 {
		t.Errorf("candidate: got %+v", c)
	}

	if g := LookAt(node, routerSamples(.2), 1e9, 9e9); g.Candidate != nil {
		t.Errorf("of a router with nothing full: got %+v", g.Candidate)
	}

	g = LookAt(node, record.NodeData{}, 1e9, 9e9)
	if len(g.Cores)+len(g.Devices) != 0 || g.PowerW != nil || g.Candidate != nil {
		t.Errorf("of nothing: got %+v", g)
	}
}
