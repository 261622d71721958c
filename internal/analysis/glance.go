package analysis

import (
	"cmp"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/diagnosis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/validity"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Glance is the current state of a node under its real traffic. Fields are absent if they could not be
// sampled.
type Glance struct {
	Node    string         `json:"node"`
	Seconds float64        `json:"seconds"` // length of the interval in s
	Cores   []CoreGlance   `json:"cores"`
	Devices []DeviceGlance `json:"devices"` // devices that carried packets
	// ClockHz is the clock of the fastest group of cores. TemperatureC is the reading of the hottest sensor.
	// PowerW is the power, from the same source as in trials.
	ClockHz      *float64 `json:"clock_hz,omitempty"`
	TemperatureC *float64 `json:"temperature_c,omitempty"`
	PowerW       *float64 `json:"power_w,omitempty"`
	// ObservingRatio is the CPU time used for sampling, as a share of one core. It is nil if the machine
	// does not report it.
	ObservingRatio *float64 `json:"observing_ratio,omitempty"`
	// Candidate is the likely limit of the traffic. It is nil if the node's own samples show no limit.
	Candidate *GlanceCause `json:"candidate,omitempty"`
}

// CoreGlance describes the load of a core: the share of time in which it was busy, and the share that it
// spent in softirqs.
type CoreGlance struct {
	Name    string  `json:"name"`
	Busy    float64 `json:"busy_ratio"`
	Softirq float64 `json:"softirq_ratio"`
}

// DeviceGlance describes the traffic of a network device. DropPs counts drops by the device and its queues.
// QueueBytes is the average backlog of the device's longest queue.
type DeviceGlance struct {
	Name   string  `json:"name"`
	RxBps  float64 `json:"rx_bps"`
	TxBps  float64 `json:"tx_bps"`
	RxPps  float64 `json:"rx_pps"`
	TxPps  float64 `json:"tx_pps"`
	DropPs float64 `json:"drops_per_s"`

	QueueBytes float64 `json:"queue_bytes"`
}

// GlanceCause is a possible limit of the traffic.
type GlanceCause struct {
	Class      string  `json:"class"`
	Text       string  `json:"text"`
	Confidence float64 `json:"confidence"` // 0 to 1, based on the rules that this node's samples allow
}

// LookAt summarises a node's samples between two times of the node's clock, in ns.
func LookAt(node record.NodeFacts, data record.NodeData, from, to int64) *Glance {
	g := &Glance{
		Node:    node.Name,
		Seconds: float64(to-from) / 1e9,
		Cores:   []CoreGlance{},
		Devices: []DeviceGlance{},
	}
	for _, c := range metrics.CoresOf(data) {
		if busy, ok := c.Busy(from, to); ok {
			softirq, _ := c.Softirq(from, to) // 0 if the kernel does not report it
			g.Cores = append(g.Cores, CoreGlance{c.Name, busy, softirq})
		}
	}

	g.devices(data, from, to)
	most := func(probe, stem string) *float64 {
		var most *float64
		for _, c := range metrics.SeriesOf(data, probe, stem) {
			if v, ok := c.Curve.Mean(from, to); ok && (most == nil || v > *most) {
				most = &v
			}
		}
		return most
	}
	g.ClockHz = most("cpufreq", "frequency_hz")
	g.TemperatureC = most("thermal", "temperature_c")
	watts, why := metrics.PowerOf(data, from, to)
	if why == "" {
		g.PowerW = &watts
	}

	for _, c := range data.Cost {
		if c.OverNs > 0 {
			ratio := float64(c.CPUNs)/float64(c.OverNs) + *cmp.Or(g.ObservingRatio, new(float64))
			g.ObservingRatio = &ratio
		}
	}

	g.candidate(node, data, from, to)
	return g
}

// devices adds the devices that carried packets, busiest first.
func (g *Glance) devices(data record.NodeData, from, to int64) {
	of := map[string]*DeviceGlance{}
	add := func(probe, stem string, scale float64, into func(*DeviceGlance) *float64) {
		for _, c := range metrics.SeriesOf(data, probe, stem) {
			grew, ok := c.Curve.Moved(from, to)
			// The label of a class or ingress qdisc starts with its device.
			name, _, _ := strings.Cut(c.Label, "@")
			if !ok || name == "lo" || grew <= 0 {
				continue
			}

			if of[name] == nil {
				of[name] = &DeviceGlance{Name: name}
			}

			*into(of[name]) += grew * scale / g.Seconds
		}
	}
	add("netdev", "rx_bytes", 8, func(d *DeviceGlance) *float64 { return &d.RxBps })
	add("netdev", "tx_bytes", 8, func(d *DeviceGlance) *float64 { return &d.TxBps })
	add("netdev", "rx_packets", 1, func(d *DeviceGlance) *float64 { return &d.RxPps })
	add("netdev", "tx_packets", 1, func(d *DeviceGlance) *float64 { return &d.TxPps })
	for _, stem := range []string{"rx_dropped", "tx_dropped"} {
		add("netdev", stem, 1, func(d *DeviceGlance) *float64 { return &d.DropPs })
	}

	add("qdisc", "drops", 1, func(d *DeviceGlance) *float64 { return &d.DropPs })
	for _, c := range metrics.SeriesOf(data, "qdisc", "backlog_bytes") {
		name, _, _ := strings.Cut(c.Label, "@")
		if v, ok := c.Curve.Mean(from, to); ok && of[name] != nil {
			of[name].QueueBytes = max(of[name].QueueBytes, v)
		}
	}

	for _, d := range of {
		g.Devices = append(g.Devices, *d)
	}

	slices.SortFunc(g.Devices, func(a, b DeviceGlance) int {
		return cmp.Or(cmp.Compare(b.RxBps+b.TxBps, a.RxBps+a.TxBps), cmp.Compare(a.Name, b.Name))
	})
}

// ofNode lists the causes that can be detected from a node's own samples, without data about the load.
var ofNode = []string{diagnosis.SoftirqOneCore, diagnosis.SoftirqAllCores, diagnosis.OtherLoad,
	diagnosis.ClockDown, diagnosis.Thermal, diagnosis.LogFlood, diagnosis.ConntrackFull,
	diagnosis.BacklogBudget, diagnosis.CryptoWorkers, diagnosis.VPNProcess}

// candidate sets the candidate by applying the rules of a diagnosis. It treats the node as the only router
// between two unknown endpoints.
func (g *Glance) candidate(node record.NodeFacts, data record.NodeData, from, to int64) {
	top := record.Topology{
		Name:    "forward",
		Near:    "client",
		Far:     "server",
		Routers: []string{node.Name},
		Nodes:   []record.TopoNode{{Name: "client"}, {Name: node.Name, Router: true}, {Name: "server"}},
	}
	run := &record.Run{Topologies: []record.Topology{top}, Nodes: []record.NodeFacts{node}}
	run.Design.Catalogue = &factor.Catalogue{Factors: factor.Base(factor.Options{})}
	t := record.Trial{
		Row: record.Row{Assignment: record.Assignment{
			Kind:    record.RowLoad,
			Factors: record.Factors{"topology": top.Name, "protocol": "tcp"},
		}},
		TrialHead: record.TrialHead{ID: "watched"},
		Status:    record.TrialOK,
		Window:    record.Window{Begin: from, Start: from, End: to, Stop: to},
		Traffic:   &record.Traffic{},
		Nodes:     map[string]record.NodeData{node.Name: data},
	}
	o := Observe(run, validity.GradeTrial(run, &t))
	checked := slices.DeleteFunc(diagnosis.Examine(o), func(j diagnosis.Candidate) bool {
		return !slices.Contains(ofNode, j.Class)
	})
	d := diagnosis.Conclude([][]diagnosis.Candidate{checked})
	if d != nil && d.Named() {
		c := d.Causes[0]
		g.Candidate = &GlanceCause{c.Class, c.Text, c.Confidence}
	}
}
