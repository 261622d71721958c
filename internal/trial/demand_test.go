package trial

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic/shortflow"
)

func shape(t *testing.T, name string) record.Topology {
	t.Helper()
	s, err := lab.TopologyNamed(name)
	if err != nil {
		t.Fatal(err)
	}

	return s
}

// catalogue is the registry's: this package's tests cannot import that.
func catalogue() *factor.Catalogue {
	base := factor.Base(factor.Options{
		Shapes:      lab.Topologies(),
		Tunnels:     []string{factor.NoTunnel, "wireguard"},
		Engines:     []string{factor.Native, "flows", "requests", "iperf3"},
		Congestions: []string{"cubic", "bbr"},
		MaxTunnels:  4,
	})
	return &factor.Catalogue{
		Shapes: lab.Topologies(),
		Factors: slices.Concat(base,
			shortflow.Flows{}.Factors(), shortflow.Requests{}.Factors(), factor.Further(),
			knob.Factors(knob.All())),
	}
}

// factors reads "name=value name=value".
func factors(text string) record.Factors {
	f := record.Factors{}
	for pair := range strings.SplitSeq(text, "; ") {
		name, value, _ := strings.Cut(pair, "=")
		f[name] = value
	}
	return f
}

func TestPlace(t *testing.T) {
	tests := []struct {
		name, topology, factors string
		want                    string // settings in order; then cores of the ends
	}{
		{"nothing to set", "forward", "topology=forward; tunnel=none; streams=4; mtu=1400; rate=flat", ""},
		{"nat is of the first router", "site-to-site", "nat=masquerade", "nat=masquerade@router-a"},
		{"nat is on the device with the tag", "forward", "nat=masquerade; vlan=10",
			"nat=masquerade@router.wan.10 vlan=10@client vlan=10@router vlan=10@server"},
		{"wherever the tag is written", "forward", "nat=forward; vlan=10; vlan@router.wan=20",
			"nat=forward@router.wan.20 vlan=10@client vlan=10@router vlan=10@server vlan=20@router.wan"},
		{"no tag on the wan port", "forward", "nat=masquerade; vlan@router.lan=10; vlan@router.wan=off",
			"nat=masquerade@router vlan=10@router.lan vlan=off@router.wan"},
		{"nat off is how it is", "forward", "nat=off", ""},
		{"no router, no nat", "direct", "nat=masquerade", ""},
		{"offload is of every device", "forward", "offload=wire",
			"offload=wire@client offload=wire@router offload=wire@server"},
		{"so is the underlay's mtu", "direct", "link_mtu=9000", "link_mtu=9000@client link_mtu=9000@server"},
		{"a tag needs both ends", "to-router", "vlan=10", "vlan=10@client vlan=10@router"},
		{"a kernel setting is of every node", "to-router", "sysctl:net.ipv4.tcp_ecn=1",
			"sysctl:net.ipv4.tcp_ecn=1@client sysctl:net.ipv4.tcp_ecn=1@router"},
		{"unless it is placed", "forward", "sysctl:net.ipv4.tcp_ecn@server=1",
			"sysctl:net.ipv4.tcp_ecn=1@server"},
		{"a queue is of the devices under test", "site-to-site", "queue=pfifo",
			"queue=pfifo@router-a queue=pfifo@router-b"},
		{"unless it is placed on a port", "forward", "queue@router.wan=pfifo", "queue=pfifo@router.wan"},
		{"cores of the router", "forward", "cpus=1", "cpus=1@router"},
		{"cores of the ends are the engine's", "forward", "cpus@client=0,2-3; cpus@server=off; cpus@router=1",
			"cpus=1@router client:[0 2 3] server:[]"},
		{"the router that ends traffic is an end", "to-router", "cpus@router=1", "router:[1]"},
		{"knob order, not the alphabet", "to-router",
			"firewall=10; queue=pfifo; link_mtu=1400; ip_forward=on; txqueuelen=9",
			"link_mtu=1400@client link_mtu=1400@router queue=pfifo@router txqueuelen=9@router " +
				"firewall=10@router ip_forward=on@router"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			settings, cpus, err := place(factors(tt.factors), shape(t, tt.topology), catalogue())
			if err != nil {
				t.Fatal(err)
			}

			var words []string
			for _, s := range settings {
				words = append(words, fmt.Sprintf("%s=%s@%s", s.Knob, s.Value, strings.TrimSuffix(s.Node+"."+
					s.Port, ".")))
			}

			for _, n := range shape(t, tt.topology).Nodes {
				if list, ok := cpus[n.Name]; ok {
					words = append(words, fmt.Sprintf("%s:%v", n.Name, list))
				}
			}

			got := strings.Join(words, " ")
			if got != tt.want {
				t.Errorf("place %s on %s:\ngot  %s\nwant %s", tt.factors, tt.topology, got, tt.want)
			}
		})
	}
}

func TestAsk(t *testing.T) {
	method := record.Method{Duration: 10 * time.Second, Warmup: time.Second}
	base := "topology=forward; tunnel=none; ip=4; nat=off; protocol=tcp; streams=4; direction=up; " +
		"congestion=cubic; engine=native"
	load := record.Load{
		Protocol:   "tcp",
		Direction:  "up",
		Streams:    4,
		IP:         4,
		Congestion: "cubic",
		Opener:     "near",
		Port:       loadPort,
		Warmup:     time.Second,
		Duration:   10 * time.Second,
		Interval:   100 * time.Millisecond,
	}
	tests := []struct {
		name, more, kind string
		want             func(d *demand)
	}{
		{"plain", "", record.RowLoad, func(*demand) {}},
		{"a port forward is opened by the far side", "nat=forward", record.RowLoad, func(d *demand) {
			d.nat, d.load.Opener = "forward", "far"
			d.settings = []record.Setting{{Knob: "nat", Node: "router", Value: "forward"}}
		}},
		{"the tunnel's mtu is the path's", "tunnel=wireguard; mtu=1380", record.RowLoad, func(d *demand) {
			d.tunnel = lab.TunnelSpec{Kind: "wireguard", MTU: 1380}
			d.wantMTU = 1380
		}},
		{"a plain link behind the tunnel bounds the path", "tunnel=wireguard; mtu=1420; link_mtu=1400",
			record.RowLoad, func(d *demand) {
				d.tunnel = lab.TunnelSpec{Kind: "wireguard", MTU: 1420}
				d.wantMTU = 1400
				d.settings = everywhere("link_mtu", "1400", shape(t, "forward"))
			}},
		{"the underlay's mtu", "link_mtu=9000", record.RowLoad, func(d *demand) {
			d.wantMTU = 9000
			d.settings = everywhere("link_mtu", "9000", shape(t, "forward"))
		}},
		{"one narrow place bounds the path", "link_mtu@router.wan=1400", record.RowLoad, func(d *demand) {
			d.wantMTU = 1400
			d.settings = []record.Setting{{Knob: "link_mtu", Node: "router", Port: "wan", Value: "1400"}}
		}},
		{"one wide place does not", "link_mtu@router.wan=9000", record.RowLoad, func(d *demand) {
			d.settings = []record.Setting{{Knob: "link_mtu", Node: "router", Port: "wan", Value: "9000"}}
		}},
		{"udp at a rate", "protocol=udp; packet_size=200; rate=1.5M; congestion=; ip=6", record.RowLoad,
			func(d *demand) {
				d.ip = 6
				d.load.Protocol = "udp"
				d.load.PacketSize = 200
				d.load.RateBps = 1.5e6
				d.load.Congestion = ""
				d.load.IP = 6
			}},
		{"udp flat out", "protocol=udp; packet_size=64; rate=flat; congestion=", record.RowLoad,
			func(d *demand) {
				d.load.Protocol = "udp"
				d.load.PacketSize = 64
				d.load.Congestion = ""
			}},
		{"packets of several sizes", "protocol=udp; packet_size=imix; frame_size=imix; rate=20M; congestion=",
			record.RowLoad, func(d *demand) {
				d.load.Protocol = "udp"
				d.load.RateBps = 20e6
				d.load.Congestion = ""
				d.load.Sizes = []int{46, 552, 46, 46, 552, 46, 1500, 552, 46, 46, 552, 46}
			}},
		{"tcp with settings of its own", "pacing=300M; mss=1000; socket_buffer=65536; dscp=46; " +
			"congestion=cubic+bbr", record.RowLoad, func(d *demand) {
			d.load.RateBps = 300e6
			d.load.MSS = 1000
			d.load.Buffer = 65536
			d.load.DSCP = 46
			d.load.Congestion = "cubic+bbr"
		}},
		{"udp counted, one by one", "protocol=udp; packet_size=64; rate=flat; congestion=; udp_mode=count; " +
			"udp_gso=off", record.RowLoad, func(d *demand) {
			d.load.Protocol = "udp"
			d.load.PacketSize = 64
			d.load.Congestion = ""
			d.load.UDPMode = "count"
			d.load.GSO = "off"
		}},
		{"short flows", "engine=flows; flow_size=websearch; connection_rate=2k; arrivals=isochronous",
			record.RowLoad, func(d *demand) {
				d.engine = "flows"
				d.load.FlowSize = "websearch"
				d.load.ConnectionRate = 2000
				d.load.Spacing = record.Isochronous
			}},
		{"a verification of short flows does not wait for them",
			"engine=flows; flow_size=100; connection_rate=1", record.RowVerify, func(d *demand) {
				d.engine, d.load.FlowSize = "flows", "100"
				d.load.Verify = true
				d.load.Warmup = 0
				d.load.Duration = 500 * time.Millisecond
			}},
		{"requests", "engine=requests; direction=both; request_size=5; response_size=7", record.RowLoad,
			func(d *demand) {
				d.engine = "requests"
				d.load.Direction = record.Both
				d.load.RequestSize = 5
				d.load.ResponseSize = 7
			}},
		{"both ends ask for ECN", "ecn=on", record.RowLoad, func(d *demand) {
			d.settings = []record.Setting{{Knob: "sysctl:net.ipv4.tcp_ecn", Node: "client", Value: "1"},
				{Knob: "sysctl:net.ipv4.tcp_ecn", Node: "server", Value: "1"}}
		}},
		{"a verification is short and not warmed up", "", record.RowVerify, func(d *demand) {
			d.load.Verify = true
			d.load.Warmup = 0
			d.load.Duration = 500 * time.Millisecond
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := factors(base)
			if tt.more != "" {
				for name, level := range factors(tt.more) {
					factor.Name(name).Set(f, level)
				}
			}

			want := demand{
				tunnel:  lab.TunnelSpec{Kind: "none"},
				ip:      4,
				nat:     "off",
				engine:  "native",
				wantMTU: 1500,
				load:    load,
				cpus:    map[string][]int{},
			}
			tt.want(&want)
			got, err := ask(record.Row{Assignment: record.Assignment{Kind: tt.kind, Factors: f}, ID: "r"},
				shape(t, "forward"), method,
				catalogue())
			if err != nil {
				t.Fatal(err)
			}

			diff := cmp.Diff(want, got, cmp.AllowUnexported(demand{}),
				cmpopts.EquateComparable(netip.Addr{}))
			if diff != "" {
				t.Errorf("demand (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSearchAsksForConnections(t *testing.T) {
	d := demand{ip: 4, load: record.Load{Protocol: "tcp", Warmup: time.Second}}
	asked := &record.SearchTrial{
		SearchLimits: record.SearchLimits{Unit: record.UnitFlows, Interfaces: 1},
		Test:         record.TestThroughput,
	}
	asked.Load = 700
	asked.Duration = 3 * time.Second
	if err := d.asks(asked); err != nil {
		t.Fatal(err)
	}

	if d.load.ConnectionRate != 700 || d.load.RateBps != 0 || d.load.Duration != 3*time.Second {
		t.Errorf("got %+v, want 700 connections a second for 3 s, and no rate of bits", d.load)
	}
}

// TestSearchAsksForMeanPayload: of a mix, packets a second are bits of its mean payload.
func TestSearchAsksForMeanPayload(t *testing.T) {
	for ip, want := range map[int]float64{4: 1200 * 2 * 8 * (float64(7*46+4*552+1500)/12 - 28),
		6: 1200 * 2 * 8 * (float64(7*66+4*552+1500)/12 - 48)} {
		d := demand{ip: ip, load: record.Load{Protocol: "udp", Sizes: factor.IMIXSizes(fmt.Sprint(ip))}}
		asked := &record.SearchTrial{
			SearchLimits: record.SearchLimits{Unit: record.UnitPackets, Interfaces: 2},
		}
		asked.Load = 1200
		asked.Duration = time.Second
		if err := d.asks(asked); err != nil {
			t.Fatal(err)
		}

		if math.Abs(d.load.RateBps-want) > 1e-6 {
			t.Errorf("IPv%d: got %v bit/s, want %v", ip, d.load.RateBps, want)
		}
	}
}

func TestAskRefusesWhatIsNoNumber(t *testing.T) {
	for _, f := range []string{"streams=many", "ip=four", "mtu=x", "link_mtu@router.wan=wide", "rate=fast",
		"packet_size=-", "cpus@client=3-1", "connection_rate=often", "request_size=x"} {
		got, err := ask(record.Row{
			Assignment: record.Assignment{Kind: record.RowLoad, Factors: factors(f)},
			ID:         "r",
		}, shape(t, "forward"),
			record.Method{}, catalogue())
		diff := cmp.Diff(demand{}, got, cmp.AllowUnexported(demand{}),
			cmpopts.EquateComparable(netip.Addr{}))
		if err == nil || diff != "" {
			t.Errorf("ask for %s: got %v and a demand (-want +got)\n%s\nwant an error and none", f, err, diff)
		}
	}
}

func FuzzCPUList(f *testing.F) {
	for _, text := range []string{"off", "0", "0-1,3", "1-", "-", "9-3", "0-4294967296"} {
		f.Add(text)
	}

	f.Fuzz(func(t *testing.T, text string) {
		got, err := cpuList(text)
		if err != nil && got != nil {
			t.Errorf("cpu list %q: got %v with an error, want none", text, got)
		}

		for _, c := range got {
			if c < 0 {
				t.Errorf("cpu list %q: got core %d, want none below 0", text, c)
			}
		}
	})
}
