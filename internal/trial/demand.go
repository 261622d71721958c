package trial

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
	"github.com/chokepoint-lab/chokepoint/internal/plan"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// Ports of the listening ends. A port forward covers 20000–20999.
const (
	loadPort  = 20000
	echoPort  = 20900
	checkPort = 20990
)

// demand is what a row asks of a lab: plain data, computed from its factors.
type demand struct {
	topology string
	tunnel   lab.TunnelSpec
	ip       int
	nat      string
	settings []record.Setting
	cpus     map[string][]int // node → cores of the engine's end there
	engine   string
	load     record.Load
	wantMTU  int
	ports    lab.DataPorts
	talker   string // the end that opens what is sent beside the load: "near" or "far"
}

// base are the factors that no knob applies by their own name.
var base = []string{"topology", "tunnel", "mtu", "ip", "protocol", "streams", "direction", "packet_size",
	"frame_size", "rate", "congestion", "engine", "copy", "nat", "offload", "outer_ip", "tunnels",
	"pacing", "mss", "socket_buffer", "dscp", "udp_mode", "udp_gso",
	"flow_size", "connection_rate", "arrivals", "request_size", "response_size"}

// ask computes the demand of a row. knobs is the order in which settings are made; a setting is placed on
// every device under test of its kind unless the factor names a place.
func ask(row record.Row, t record.Topology, m record.Method, knobs []string) (demand, error) {
	f := row.Factors
	d := demand{topology: t.Name, tunnel: lab.TunnelSpec{Kind: f["tunnel"]}, nat: f["nat"], ip: 4,
		engine: f["engine"], wantMTU: factor.PathMTU(t, f)}
	var err error
	number := func(name string, into *int) {
		text := f[name]
		if text == "" || err != nil {
			return
		}
		n, convErr := strconv.Atoi(text)
		if convErr != nil {
			err = fmt.Errorf("row %s: %s=%q is not a number", row.ID, name, text)
		}
		*into = n
	}
	number("ip", &d.ip)
	for name := range f {
		if name == "link_mtu" || strings.HasPrefix(name, "link_mtu@") {
			number(name, new(int))
		}
	}
	number("mtu", &d.tunnel.MTU)
	number("outer_ip", &d.tunnel.Outer)
	number("tunnels", &d.tunnel.Count)
	d.load = record.Load{Protocol: f["protocol"], Direction: f["direction"], Streams: 1, IP: d.ip,
		Congestion: f["congestion"], Opener: "near", Port: loadPort, Warmup: m.Warmup, Duration: m.Duration,
		Interval: 100 * time.Millisecond, Verify: row.Kind == record.RowVerify}
	number("streams", &d.load.Streams)
	d.load.Tunnels = d.tunnel.Count
	if sizes := f.PacketSizes(); len(sizes) > 1 {
		d.load.Sizes = sizes
	} else {
		number("packet_size", &d.load.PacketSize)
	}
	d.load.UDPMode = f["udp_mode"]
	if factor.UDPGSO.Is(f, factor.Off) {
		d.load.Trains = record.TrainsOff
	}
	number("mss", &d.load.MSS)
	number("socket_buffer", &d.load.Buffer)
	number("dscp", &d.load.DSCP)
	number("request_size", &d.load.RequestSize)
	number("response_size", &d.load.ResponseSize)
	if f["nat"] == "forward" {
		d.load.Opener = "far"
	}
	if err == nil {
		err = askRates(row, &d.load)
	}
	d.fitTo(row.Kind, m)
	if err != nil {
		return demand{}, err
	}
	if d.settings, d.cpus, err = place(f, t, knobs); err != nil {
		return demand{}, err
	}
	return d, nil
}

// fitTo makes a verification short, and times those of the engine.
func (d *demand) fitTo(kind string, m record.Method) {
	if kind == record.RowVerify {
		d.load.Warmup, d.load.Duration = 0, min(m.Duration, plan.VerifyLength)
		d.load.Streams = max(d.load.Streams, d.load.Tunnels) // what each tunnel carries is verified
	}
	if d.engine == "iperf3" { // which knows whole seconds only
		d.load.Warmup, d.load.Duration = wholeSeconds(d.load.Warmup), wholeSeconds(d.load.Duration)
	}
}

// askRates adds the rates that a cell names, and what else is asked of short flows. A verification is so
// short that its flows are not begun at a rate.
func askRates(row record.Row, load *record.Load) error {
	var err error
	if load.RateBps, err = statedRate(row.Factors); err != nil {
		return err
	}
	load.FlowSize, load.Spacing = row.Factors["flow_size"], row.Factors["arrivals"]
	rate := row.Factors["connection_rate"]
	if rate == "" || row.Kind == record.RowVerify {
		return nil
	}
	hz, err := unit.ParsePacketRate(rate)
	load.ConnectionRate = float64(hz)
	return err
}

// switched is the value of a kernel setting that is on or off.
func switched(level string) string {
	if level == "on" {
		return "1"
	}
	return "0"
}

// statedRate is the rate of UDP or of TCP that a cell names; 0 is flat out, or a share of what only the
// campaign knows.
func statedRate(f record.Factors) (float64, error) {
	rate := f["rate"] + f["pacing"]
	if _, found := factor.FoundOf(f); found || rate == "" || rate == "flat" {
		return 0, nil
	}
	b, err := unit.ParseBitrate(rate)
	return float64(b), err
}

// wholeSeconds rounds up, so that the conductor's window is the engine's.
func wholeSeconds(d time.Duration) time.Duration {
	return (d + time.Second - 1).Truncate(time.Second)
}

// place turns the factors that knobs apply into settings, in knob order.
func place(f record.Factors, t record.Topology, knobs []string) ([]record.Setting, map[string][]int, error) {
	var out []record.Setting
	cpus := map[string][]int{}
	names := make([]string, 0, len(f))
	for n := range f {
		names = append(names, n)
	}
	slices.Sort(names)
	for _, name := range names {
		knob, at, placed := strings.Cut(name, "@")
		switch {
		case knob == "nat":
			if f[name] != "off" && len(t.Routers) > 0 {
				out = append(out, record.Setting{Knob: knob, Node: t.Routers[0], Port: taggedWAN(f, t),
					Value: f[name]})
			}
		case knob == "ecn" && !placed: // asked for by the end that opens, agreed to by the other
			for _, end := range []string{t.Near, t.Far} {
				out = append(out, record.Setting{Knob: "sysctl:net.ipv4.tcp_ecn", Node: end,
					Value: switched(f[name])})
			}
		case knob == "offload" && !placed:
			out = append(out, everywhere(knob, f[name], t)...)
		case slices.Contains(base, knob) && !placed:
		case knob == "cpus" && placed && isEnd(at, t):
			list, err := cpuList(f[name])
			if err != nil {
				return nil, nil, fmt.Errorf("place %s: %v", name, err)
			}
			cpus[at] = list
		case knob == "cpu_quota": // of the machine that carries the lab
			out = append(out, record.Setting{Knob: knob, Node: lab.HostNode, Value: f[name]})
		case placed && at != lab.HostNode:
			node, port, _ := strings.Cut(at, ".")
			out = append(out, record.Setting{Knob: knob, Node: node, Port: port, Value: f[name]})
		case knob == "link_mtu" || knob == "vlan" || strings.HasPrefix(knob, "sysctl:"):
			out = append(out, everywhere(knob, f[name], t)...)
		default: // of the device under test, also where the machine that carries it is named
			for _, r := range t.Routers {
				out = append(out, record.Setting{Knob: knob, Node: r, Value: f[name]})
			}
		}
	}
	rank := func(s record.Setting) int {
		name, _, isFamily := strings.Cut(s.Knob, ":")
		if isFamily {
			name += ":"
		}
		return slices.Index(knobs, name)
	}
	slices.SortStableFunc(out, func(a, b record.Setting) int { return rank(a) - rank(b) })
	return out, cpus, nil
}

// taggedWAN is the device of the first router's WAN port where the cell puts a tag on that, else "". A
// change of the tag makes the setting another, so that the translation moves along.
func taggedWAN(f record.Factors, t record.Topology) string {
	router := t.Routers[0]
	for _, l := range t.Links {
		wan := l.Ends[0]
		if wan.Node != router { // the first end faces the far side
			continue
		}
		for _, place := range []string{"@" + router + "." + wan.Port, "@" + router, ""} {
			level, ok := f["vlan"+place]
			if !ok {
				continue
			}
			if dev := knob.VLANDevice(wan.Port, knob.State(level)); dev != wan.Port {
				return dev
			}
			return ""
		}
	}
	return ""
}

func isEnd(node string, t record.Topology) bool { return node == t.Near || node == t.Far }

func everywhere(knob, value string, t record.Topology) []record.Setting {
	var out []record.Setting
	for _, n := range t.Nodes {
		out = append(out, record.Setting{Knob: knob, Node: n.Name, Value: value})
	}
	return out
}

// maxCore is the highest number of a core that a Linux kernel can be built for (CONFIG_NR_CPUS, 8192 at
// most).
const maxCore = 8191

// cpuList reads the canonical text of the knob cpus: "off" or "0-1,3".
func cpuList(text string) ([]int, error) {
	if text == "off" {
		return nil, nil
	}
	var out []int
	for part := range strings.SplitSeq(text, ",") {
		lo, hi, isRange := strings.Cut(part, "-")
		if !isRange {
			hi = lo
		}
		a, errA := strconv.Atoi(lo)
		b, errB := strconv.Atoi(hi)
		if errA != nil || errB != nil || a < 0 || b < a || b > maxCore {
			return nil, fmt.Errorf("read cores %q: want a list such as 0-1,3", text)
		}
		for c := a; c <= b; c++ {
			out = append(out, c)
		}
	}
	return out, nil
}
