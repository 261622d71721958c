package validity

import (
	"maps"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

func TestCeiling(t *testing.T) {
	tests := []struct {
		name    string
		factors record.Factors
		kind    string
		bps     float64
		eff     float64
	}{
		{"virtual link", quickFactors(), "none: virtual link", 0, 1448.0 / 1538},
		{"wireguard", quickFactors("tunnel", "wireguard"), "none: virtual link", 0, 1368.0 / 1518},
		{"esp", quickFactors("tunnel", "esp", "mtu", "1446"), "none: virtual link", 0, 1394.0 / 1538},
		{"esp with CBC", quickFactors("tunnel", "esp-aes-cbc-sha256", "mtu", "1438"), "none: virtual link", 0,
			1386.0 / 1538},
		{"wireguard IPv6 inside", quickFactors("tunnel", "wireguard", "ip", "6"), "none: virtual link", 0,
			1348.0 / 1518},
		{"small UDP", quickFactors("protocol", "udp"), "none: virtual link", 0, 36.0 / 102},
		{"packets of several sizes", quickFactors("protocol", "udp", "packet_size", "imix"),
			"none: virtual link", 0, (4030.0 - 12*28) / (4030 + 12*38)},
		{"packets of several sizes, shaped", quickFactors("protocol", "udp", "packet_size", "imix",
			"queue@router.wan", "tbf rate 300M"),
			"tbf 300 Mbit/s on router/wan", 300e6 * (4030 - 12*28) / (4030 + 12*14),
			(4030.0 - 12*28) / (4030 + 12*38)},
		{"vlan", quickFactors("vlan@router.wan", "10"), "none: virtual link", 0, 1448.0 / 1542},
		{"jumbo", quickFactors("link_mtu", "9000"), "none: virtual link", 0, 8948.0 / 9038},
		{"no shaper in the queue", quickFactors("queue@router.wan", "pfifo limit 100"), "none: virtual link",
			0, 1448.0 / 1538},
		{"tbf", quickFactors("queue@router.wan", "tbf rate 300M burst 128k"), "tbf 300 Mbit/s on router/wan",
			300e6 * 1448 / 1514, 1448.0 / 1538},
		{"htb everywhere", quickFactors("queue", "htb rate 300M"), "htb 300 Mbit/s", 300e6 * 1448 / 1514,
			1448.0 / 1538},
		{"cake", quickFactors("queue@router.wan", "cake bandwidth 50M"), "cake 50.0 Mbit/s on router/wan",
			50e6 * 1448 / 1514, 1448.0 / 1538},
		{"data does not pass it", quickFactors("queue@router.wan", "tbf rate 300M", "direction", "down"),
			"none: virtual link", 0, 1448.0 / 1538},
		{"data passes it down", quickFactors("queue@router.lan", "tbf rate 300M", "direction", "down"),
			"tbf 300 Mbit/s on router/lan", 300e6 * 1448 / 1514, 1448.0 / 1538},
		{"both ways, one shaped", quickFactors("queue@router.lan", "tbf rate 300M", "direction", "both"),
			"none: virtual link", 0, 1448.0 / 1538},
		{"both ways, both shaped", quickFactors("queue@router", "tbf rate 300M", "direction", "both"),
			"tbf 300 Mbit/s on router", 600e6 * 1448 / 1514, 1448.0 / 1538},
		{"outside the tunnel", quickFactors("queue@router.wan", "tbf rate 300M", "tunnel", "wireguard"),
			"tbf 300 Mbit/s on router/wan", 300e6 * 1368 / 1434, 1368.0 / 1518},
		{"over the tunnel's link", quickFactors("queue@client.lan", "tbf rate 300M", "tunnel", "wireguard"),
			"tbf 300 Mbit/s on client/lan", 300e6 * 1368 / 1494, 1368.0 / 1518},
		{"the slower of two", quickFactors("queue@client.lan", "tbf rate 1G", "queue@router.wan",
			"tbf rate 300M"), "tbf 300 Mbit/s on router/wan", 300e6 * 1448 / 1514, 1448.0 / 1538},
		{"cake with DSL's overhead", quickFactors("queue@router.wan",
			"cake bandwidth 50M rtt 100ms overhead 34 mpu 68 atm"), "cake 50.0 Mbit/s on router/wan",
			50e6 * 1448 / (32 * 53), 1448.0 / 1538},
		{"cake with PTM", quickFactors("queue@router.wan", "cake bandwidth 50M overhead 30 ptm"),
			"cake 50.0 Mbit/s on router/wan", 50e6 * 1448 / (1530 + 24), 1448.0 / 1538},
		{"cake, small packets", quickFactors("protocol", "udp", "queue@router.wan",
			"cake bandwidth 50M mpu 84"), "cake 50.0 Mbit/s on router/wan", 50e6 * 36 / 84, 36.0 / 102},
		{"shape", quickFactors("shape", "50M"), "shape 50.0 Mbit/s", 50e6 * 1448 / 1514, 1448.0 / 1538},
		{"shape towards the far side, data the other way", quickFactors("shape", "50M", "direction", "down"),
			"none: virtual link", 0, 1448.0 / 1538},
		{"shape on the near side's port", quickFactors("shape@router.lan", "50M", "direction", "down"),
			"shape 50.0 Mbit/s on router/lan", 50e6 * 1448 / 1514, 1448.0 / 1538},
		{"no shape", quickFactors("shape", "off"), "none: virtual link", 0, 1448.0 / 1538},
		{"policer", quickFactors("policer", "50M"), "policer 50.0 Mbit/s", 50e6 * 1448 / 1500, 1448.0 / 1538},
		{"policer of packets that GRO joins", quickFactors("policer", "50M", "offload", "super"),
			"policer 50.0 Mbit/s", 50e6, 1448.0 / 1538},
		{"policer, data the other way", quickFactors("policer", "50M", "direction", "down"),
			"none: virtual link", 0, 1448.0 / 1538},
		{"policer on the far side", quickFactors("policer@router.wan", "50M", "direction", "down"),
			"policer 50.0 Mbit/s on router/wan", 50e6 * 1448 / 1500, 1448.0 / 1538},
		{"policer before the tunnel", quickFactors("policer", "50M", "tunnel", "wireguard"),
			"policer 50.0 Mbit/s", 50e6 * 1368 / 1480, 1368.0 / 1518},
		{"fragmented tunnel", quickFactors("tunnel", "wireguard", "mtu", "1500"), "none: virtual link", 0,
			1448.0 / (1538 + 118)},
	}
	run := syntheticRun()
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := CeilingOf(&run, test.factors)
			if got.Kind != test.kind {
				t.Errorf("kind %q, want %q", got.Kind, test.kind)
			}

			if math.Abs(got.Bps-test.bps) > 1 {
				t.Errorf("ceiling %.0f bit/s, want %.0f", got.Bps, test.bps)
			}

			if math.Abs(got.Efficiency-test.eff) > 1e-9 {
				t.Errorf("header efficiency %.6f, want %.6f", got.Efficiency, test.eff)
			}
		})
	}
}

func TestPassesOfSiteToSite(t *testing.T) {
	port := func(n, p string) record.TopoPort { return record.TopoPort{Node: n, Port: p} }
	link := func(a, b record.TopoPort) record.TopoLink {
		return record.TopoLink{Ends: [2]record.TopoPort{a, b}}
	}
	top := record.Topology{
		Near:    "client",
		Far:     "server",
		Tunnel:  [2]string{"a", "b"},
		Routers: []string{"a", "b"},
		Links: []record.TopoLink{
			link(port("client", "lan"), port("a", "lan")), link(port("a", "wan"), port("isp", "a")),
			link(port("isp", "b"), port("b", "wan")), link(port("b", "lan"), port("server", "lan")),
		},
	}
	for _, test := range []struct {
		node, port string
		up, down   []bool
	}{
		{"a", "wan", []bool{true}, nil},
		{"b", "wan", nil, []bool{true}},
		{"isp", "", []bool{true}, []bool{true}},
		{"b", "lan", []bool{false}, nil},
		{"client", "lan", []bool{false}, nil},
		{"", "", []bool{true, false}, []bool{false, true}},
		{"nobody", "", nil, nil},
	} {
		up, down := passes(&top, test.node, test.port)
		diff := cmp.Diff([][]bool{test.up, test.down}, [][]bool{up, down})
		if diff != "" {
			t.Errorf("%s.%s (-want +got)\n%s", test.node, test.port, diff)
		}
	}
}

func TestTesterCeiling(t *testing.T) {
	run := syntheticRun()
	run.Ceilings = []record.Ceiling{
		{
			TrafficKind: record.TrafficKind{Streams: 1},
			Kind:        "tcp loopback, 1 stream",
			Value:       30e9,
			Unit:        "bit/s",
		},
		{
			TrafficKind: record.TrafficKind{Streams: 4},
			Kind:        "tcp loopback, 4 streams",
			Value:       50e9,
			Unit:        "bit/s",
		},
		{
			TrafficKind: record.TrafficKind{PacketSize: 64, Streams: 1},
			Kind:        "udp loopback, 64-byte packets",
			Value:       1e6,
			Unit:        "pps",
		},
		{
			TrafficKind: record.TrafficKind{Protocol: "udp", PacketSize: 1500, Streams: 2},
			Kind:        "udp loopback, 1500-byte packets, 2 streams",
			Value:       8e5,
			Unit:        "pps",
		},
		{
			TrafficKind: record.TrafficKind{Engine: "flows", FlowSize: "10000", Streams: 1},
			Kind:        "flows loopback, size 10000, 1 stream",
			Value:       8e3,
			Unit:        "flows/s",
		},
		{
			TrafficKind: record.TrafficKind{Engine: "flows", FlowSize: "10000", Streams: 64},
			Kind:        "flows loopback, size 10000, 64 streams",
			Value:       3e4,
			Unit:        "flows/s",
		},
		{
			TrafficKind: record.TrafficKind{
				Engine:       "requests",
				RequestSize:  100,
				ResponseSize: 1000,
				Streams:      4,
			},
			Kind:  "requests loopback, 100 and 1000 bytes, 4 streams",
			Value: 1e5,
			Unit:  "requests/s",
		},
	}
	flows := func(size string, more ...string) record.Factors {
		return quickFactors(append([]string{"engine", "flows", "flow_size", size}, more...)...)
	}
	requests := func(size string) record.Factors {
		return quickFactors("engine", "requests", "request_size", size, "response_size", "1000")
	}
	for _, test := range []struct {
		factors record.Factors
		want    float64
	}{
		{quickFactors(), 30e9}, {quickFactors("streams", "4"), 50e9}, {quickFactors("streams", "3"), 50e9},
		{quickFactors("streams", "64"), 50e9},
		{quickFactors("protocol", "udp"), 1e6}, {quickFactors("protocol", "udp", "packet_size", "1500"), 8e5},
		{quickFactors("protocol", "udp", "packet_size", "200"), 1e6},
		{quickFactors("protocol", "udp", "packet_size", "600"), 8e5},
		{flows("10000"), 8e3}, {flows("10000", "streams", "20"), 3e4},
		{flows("10000", "connection_rate", "500"), 3e4}, {flows("websearch"), 0},
		{requests("100"), 1e5}, {requests("200"), 0},
		{quickFactors("protocol", "udp", "udp_mode", "count"), 0},
		{quickFactors("protocol", "udp", "udp_mode", "exact"), 1e6},
	} {
		_, got := TesterCeiling(&run, test.factors)
		if got != test.want {
			t.Errorf("%s: %g, want %g", test.factors.Key(), got, test.want)
		}
	}
}

// A ceiling over a link is that of cells whose packets are the same there.
func TestTesterCeilingOfALink(t *testing.T) {
	run := syntheticRun()
	run.Ceilings = []record.Ceiling{
		{
			TrafficKind: record.TrafficKind{Link: record.Link{Offload: "super"}, Protocol: "tcp", Streams: 1},
			Kind:        "tcp direct, 1 stream, super",
			Value:       30e9,
			Unit:        "bit/s",
		},
		{
			TrafficKind: record.TrafficKind{Link: record.Link{Offload: "wire"}, Protocol: "tcp", Streams: 1},
			Kind:        "tcp direct, 1 stream",
			Value:       9e9,
			Unit:        "bit/s",
		},
		{
			TrafficKind: record.TrafficKind{
				Link:     record.Link{Offload: "wire", MTU: 9000},
				Protocol: "tcp",
				Streams:  1,
			},
			Kind:  "tcp direct, 1 stream, MTU 9000",
			Value: 20e9,
			Unit:  "bit/s",
		},
		{
			TrafficKind: record.TrafficKind{
				Link:       record.Link{Offload: "wire"},
				Protocol:   "udp",
				PacketSize: 64,
			},
			Kind:  "udp direct, 64-byte packets",
			Value: 8e5,
			Unit:  "pps",
		},
		{
			TrafficKind: record.TrafficKind{
				Link:       record.Link{Offload: "wire"},
				Protocol:   "udp",
				PacketSize: 64,
				UDPMode:    "count",
			},
			Kind:  "udp direct, 64-byte packets, count mode",
			Value: 16e5,
			Unit:  "pps",
		},
		{
			TrafficKind: record.TrafficKind{Engine: "xdp", Protocol: "udp", PacketSize: 46},
			Kind:        "xdp direct, 64-byte frames",
			Value:       3e6,
			Unit:        "pps",
		},
	}
	for _, test := range []struct {
		factors record.Factors
		want    float64
	}{
		{quickFactors("offload", "wire"), 9e9}, {quickFactors("offload", "super"), 30e9},
		{quickFactors("offload", "tso=on"), 0},
		{quickFactors("offload", "wire", "link_mtu", "9000"), 20e9},
		{quickFactors("offload", "wire", "link_mtu", "1400"), 9e9},
		{quickFactors("offload", "wire", "link_mtu", "4000"), 0},
		{quickFactors("offload", "super", "link_mtu", "9000"), 0},
		{quickFactors("offload", "wire", "protocol", "udp", "link_mtu", "9000"), 8e5},
		{quickFactors("offload", "super", "protocol", "udp"), 0},
		{quickFactors("offload", "wire", "protocol", "udp", "udp_mode", "count"), 16e5},
		{quickFactors("offload", "super", "protocol", "udp", "engine", "xdp"), 3e6},
	} {
		_, got := TesterCeiling(&run, test.factors)
		if got != test.want {
			t.Errorf("%s: %g, want %g", test.factors.Key(), got, test.want)
		}
	}
}

// TestCeilingOfCardsAndStatedLinks: the rate of the network card by which an end reaches the other is one,
// and so is that of the condition link.
func TestCeilingOfCardsAndStatedLinks(t *testing.T) {
	type facts = map[string]string
	end := func(node, device string, more facts) record.Environment {
		e := record.Environment{
			Node: node,
			Facts: facts{"path_ipv4:device": device,
				"sysctl:net.ipv4.tcp_timestamps": "1", "device:eth0:driver": "igb",
				"device:eth0:speed_mbps": "1000", "device:fast0:driver": "ixgbe",
				"device:fast0:speed_mbps": "2500", "device:bond0:speed_mbps": "1000",
				"device:veth0:speed_mbps": "10000", "device:ens160:driver": "vmxnet3",
				"device:ens160:speed_mbps": "1000", "device:wlan0:driver": "ath9k"},
		}
		maps.Copy(e.Facts, more)
		return e
	}
	router := func(mtu string) record.Environment {
		return record.Environment{Node: "router", Facts: facts{"path_ipv4:mtu": mtu}}
	}
	const card = "network card 1.00 Gbit/s on server"
	none := "none: no link rate is known"
	pair := record.LabPair
	for name, tt := range map[string]struct {
		lab, link string
		ends      []record.Environment
		kind      string
		bps       float64
	}{
		"both ends known": {pair, "", []record.Environment{router("1500"), end("client", "fast0", nil),
			end("server", "eth0", nil)}, card, 1e9 * 1448 / 1538},
		"one end known": {pair, "", []record.Environment{router("1500"), end("client", "wlan0", nil),
			end("server", "eth0", nil)}, card, 1e9 * 1448 / 1538},
		"jumbo frames": {pair, "", []record.Environment{router("9000"), end("client", "fast0", nil),
			end("server", "eth0", nil)}, card, 1e9 * 8948 / 9038},
		"no time stamps": {pair, "", []record.Environment{router("1500"), end("client", "fast0",
			facts{"sysctl:net.ipv4.tcp_timestamps": "0"}), end("server", "eth0", nil)}, card,
			1e9 * 1460 / 1538},
		"a path of unknown MTU": {pair, "", []record.Environment{end("client", "eth0", nil)}, none, 0},
		"over the loopback device": {pair, "", []record.Environment{router("65536"),
			end("client", "lo", nil), end("server", "lo", nil)}, none, 0},
		"over a bridge or bond": {pair, "", []record.Environment{router("1500"), end("client", "bond0", nil),
			end("server", "virbr0", nil)}, none, 0},
		"a virtual card": {pair, "", []record.Environment{router("1500"), end("client", "ens160", nil)},
			none, 0},
		"an unknown device": {pair, "", []record.Environment{router("1500"), end("client", "", nil)}, none, 0},
		"a card of unknown speed": {pair, "", []record.Environment{router("1500"),
			end("client", "wlan0", nil)}, none, 0},
		"no card": {record.LabLocal, "", []record.Environment{router("1500"), end("client", "eth0", nil)},
			"none: virtual link", 0},
		"stated in words": {pair, "DSL", []record.Environment{router("1500"), end("client", "wlan0", nil),
			end("server", "eth0", nil)}, card, 1e9 * 1448 / 1538},
		"stated": {pair, "500M", []record.Environment{end("client", "eth0", nil),
			end("server", "eth0", nil)}, "link 500 Mbit/s", 500e6 * 1448 / 1538},
	} {
		f := quickFactors()
		run := syntheticRun(f)
		inLab(&run, tt.lab)
		run.Environments = tt.ends
		if tt.link != "" {
			run.Design.Conditions = map[string]string{record.LinkCondition: tt.link}
		}

		c := CeilingOf(&run, f)
		if c.Kind != tt.kind || math.Abs(c.Bps-tt.bps) > 1 {
			t.Errorf("%s: got %s, %.0f bit/s, want %s, %.0f", name, c.Kind, c.Bps, tt.kind, tt.bps)
		}
	}
}

// TestStatedBurst: a burst that the level states stands for the default, also where it is smaller.
func TestStatedBurst(t *testing.T) {
	for level, want := range map[string]float64{"tbf rate 20M burst 32k": 32 << 10, "tbf rate 20M": 128 << 10,
		"tbf rate 1G burst 1m": 1 << 20} {
		f := quickFactors("queue@router.wan", level)
		run := syntheticRun(f)
		c := CeilingOf(&run, f)
		if c.Burst != want {
			t.Errorf("%s: got a burst of %.0f, want %.0f", level, c.Burst, want)
		}
	}
}

// TestControlOf: a tunnel's control is the same load in the same tunnel without a router.
func TestControlOf(t *testing.T) {
	cell := quickFactors("tunnel", "wireguard", "queue@router.wan", "tbf rate 1G", "nat", "masquerade")
	for name, tt := range map[string]struct {
		control record.Factors
		want    bool
	}{
		"the same without a router": {quickFactors("tunnel", "wireguard", "topology", "direct"), true},
		"no tunnel":                 {quickFactors("topology", "direct"), false},
		"more streams": {quickFactors("tunnel", "wireguard", "topology", "direct", "streams", "4"),
			false},
		"with a router": {quickFactors("tunnel", "wireguard"), false},
	} {
		got := ControlOf(tt.control, cell)
		if got != tt.want {
			t.Errorf("%s: got %v, want %v", name, got, tt.want)
		}
	}
}
