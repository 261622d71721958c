package trial

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
	"github.com/chokepoint-lab/chokepoint/internal/lab/tunnel"
	"github.com/chokepoint-lab/chokepoint/internal/probe"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// Capability describes an ability of a lab: present, absent or unknown.
type Capability struct {
	Area   string       `json:"area"` // tunnel, setting, engine, probe, …
	Name   string       `json:"name"`
	Answer check.Answer `json:"answer"`
}

// examined lists settings to examine, as knob and level: at least one per knob, and one for each feature
// that a kernel may lack.
var examined = strings.Split(`queue=noqueue
queue=pfifo
queue=bfifo limit 256k
queue=pfifo_fast
queue=mq
queue=tbf rate 300M
queue=htb rate 300M
queue=codel
queue=fq_codel
queue=cake
queue=fq
queue=sfq
queue=netem delay 1ms
shape=300M
policer=300M
txqueuelen=500
nat=masquerade
nat=forward
firewall=100
firewall=100 stateful
flowtable=on
flow_export=softflowd
mss_clamp=pmtu
governor=performance
conntrack_max=5000
ip_forward=ipv4
link_mtu=9000
offload=super
offload=wire
vlan=10
wan=dhcp
wan=pppoe
cpus=0
cpu_count=1
cpu_quota=50%
irq_affinity=0
napi_threaded=on
gro_flush_timeout=20us
idle_tunnels=1
idle_policies=1
fault=loss=1%
fault=link_rate=50M
fault=rules=100
fault=cpu_hog=1
sysctl:net.ipv4.tcp_rmem=4096 131072 6291456`, "\n")

// usualControls lists congestion controls to examine in addition to those that the kernel offers.
var usualControls = []string{"cubic", "reno", "bbr"}

// Examine checks each capability of a lab and of this machine once. It changes nothing.
func Examine(ctx context.Context, l *lab.Lab, tunnels []tunnel.Tunnel, engines []traffic.Engine,
	probes []probe.Probe) ([]Capability, error) {
	var out []Capability
	add := func(area, name string, a check.Answer) { out = append(out, Capability{area, name, a}) }
	for _, t := range tunnels {
		add("tunnel", t.Name(), l.CheckTunnel(ctx, lab.TunnelSpec{Kind: t.Name()}))
	}

	for _, s := range examined {
		name, level, _ := strings.Cut(s, "=")
		setting := record.Setting{Knob: name, Node: l.Topology.Routers[0], Value: level}
		switch targetOf(name) {
		case factor.Carrier:
			setting.Node = lab.HostNode
		case factor.WANLink:
			setting.Port = "wan"
		}

		add("setting", s, l.CheckSetting(ctx, setting))
	}

	var ends [2]traffic.End
	for i, name := range []string{l.Topology.Near, l.Topology.Far} {
		n, err := l.Node(ctx, name)
		if err != nil {
			return out, err
		}

		ends[i] = traffic.End{Node: n.Name, Agent: n.Agent}
	}

	ask := func(e traffic.Engine, load record.Load) check.Answer {
		load.Streams = 1
		load.IP = 4
		load.Opener = "near"
		return e.Check(ctx, ends[0], ends[1], load)
	}
	tcp := record.Load{Protocol: "tcp", Direction: record.Up}
	for _, e := range engines {
		asked := []traffic.Asked{{Load: tcp}}
		if own, ok := e.(interface{ Asked() []traffic.Asked }); ok {
			asked = own.Asked()
		}

		for _, a := range asked {
			add("engine", strings.TrimSuffix(e.Name()+": "+a.Way, ": "), ask(e, a.Load))
		}
	}

	offered, _ := host.Local().ReadFile(ctx, "/proc/sys/net/ipv4/tcp_available_congestion_control")
	controls := slices.Sorted(slices.Values(append(strings.Fields(string(offered)), usualControls...)))
	for _, tcp.Congestion = range slices.Compact(controls) {
		add("congestion control", tcp.Congestion, ask(engines[0], tcp))
	}

	for _, p := range probes {
		add("probe", p.Name, p.Check())
	}

	return out, nil
}

// targetOf returns the target of a knob's settings if the plan names no place.
func targetOf(name string) factor.Target {
	for _, k := range knob.All() {
		if k.Name() == name {
			return k.Factor().Target
		}
	}
	return factor.Routers // the knob is not a factor itself, but a member of a family
}

// Timer describes how precisely this machine follows the schedule of a latency probe.
type Timer struct {
	Stamps    string `json:"stamps"` // "kernel" or "user"
	Probes    int    `json:"probes"`
	LateP50Ns int64  `json:"late_p50_ns"` // actual minus scheduled send time
	LateP99Ns int64  `json:"late_p99_ns"`
	RTTP50Ns  int64  `json:"rtt_p50_ns"` // round-trip time on the loopback device
	Lost      int    `json:"lost"`

	Scheduling string `json:"scheduling,omitempty"` // scheduling class of the sending thread
	Includes   string `json:"includes,omitempty"`   // what the round-trip time includes

	ClockSource string `json:"clock_source,omitempty"` // clock source of the kernel
	ClockReadNs int64  `json:"clock_read_ns"`          // median cost of reading the clock
	ClockStepNs int64  `json:"clock_step_ns"`          // smallest step observed
}

// MeasureTimer runs the latency probe on the loopback device of the near endpoint, with an interval of 1
// ms, for half a second.
func MeasureTimer(ctx context.Context, l *lab.Lab, p traffic.Prober) (Timer, error) {
	n, err := l.Node(ctx, l.Topology.Near)
	if err != nil {
		return Timer{}, err
	}

	end, err := traffic.LoopbackEnd(ctx, n.Name, n.Agent)
	if err != nil {
		return Timer{}, err
	}

	const length, interval = 500 * time.Millisecond, time.Millisecond
	got, err := p.Probe(ctx, end, end, record.Load{
		Protocol:   "echo",
		Direction:  record.Up,
		Streams:    1,
		IP:         4,
		PacketSize: 100,
		Opener:     "near",
		Port:       echoPort,
		Duration:   length,
		Interval:   interval,
		Tag:        "timer",
	},
		newConductor(1, 0, length))
	if err != nil {
		return Timer{}, fmt.Errorf("measure the timer: %w", err)
	}

	rtt := answered(got.RTT)
	t := Timer{
		Stamps:     got.Stamps,
		Probes:     len(got.RTT),
		Lost:       len(got.RTT) - len(rtt),
		LateP50Ns:  nearestRank(got.Late, 0.5),
		LateP99Ns:  nearestRank(got.Late, 0.99),
		RTTP50Ns:   nearestRank(rtt, 0.5),
		Scheduling: got.Details["probe.scheduling"],
		Includes:   got.Includes,
	}
	t.readClock(ctx)
	return t, nil
}

// readClock measures the cost and resolution of reading the clock.
func (t *Timer) readClock(ctx context.Context) {
	source, err := host.Local().ReadFile(ctx,
		"/sys/devices/system/clocksource/clocksource0/current_clocksource")
	if err == nil {
		t.ClockSource = strings.TrimSpace(string(source))
	}

	steps := make([]int64, 0, 2000)
	for before := host.Monotonic(); len(steps) < cap(steps); {
		now := host.Monotonic()
		steps = append(steps, now-before)
		before = now
	}

	t.ClockReadNs, t.ClockStepNs = nearestRank(steps, 0.5), slices.Min(steps)
}

// answered returns the round-trip times of the probes that were not lost.
func answered(rtt []int64) []int64 {
	return slices.DeleteFunc(slices.Clone(rtt), func(r int64) bool { return r < 0 })
}

func nearestRank(values []int64, q float64) int64 {
	if len(values) == 0 {
		return 0
	}

	s := slices.Sorted(slices.Values(values))
	return s[min(int(q*float64(len(s))), len(s)-1)]
}
