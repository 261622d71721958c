package plan_test

import (
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/plan"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/google/go-cmp/cmp"
)

func read(t *testing.T, text string, sets ...string) *plan.Plan {
	t.Helper()
	p, err := plan.Read("p.yaml", []byte(text), words(), sets)
	if err != nil {
		t.Fatal(err)
	}

	return p
}

// pick prints the named factors of each cell.
func pick(cells []record.Factors, names ...string) []string {
	var out []string
	for _, c := range cells {
		var parts []string
		for _, n := range names {
			if level, ok := c[n]; ok {
				parts = append(parts, n+"="+level)
			}
		}

		out = append(out, strings.Join(parts, " "))
	}
	return out
}

var expansions = []struct {
	name, text, show string
	want             []string
}{
	{
		"order as listed, the first factor slowest",
		"matrix: {ip: [6, 4], streams: [4, 1]}", "ip streams",
		[]string{"ip=6 streams=4", "ip=6 streams=1", "ip=4 streams=4", "ip=4 streams=1"},
	},
	{
		"mtu without tunnel collapses",
		"matrix: {tunnel: [none, wireguard], mtu: [1420, 1280]}", "tunnel mtu",
		[]string{"tunnel=none", "tunnel=wireguard mtu=1420", "tunnel=wireguard mtu=1280"},
	},
	{
		"the tunnel's default mtu is the underlay's less 80",
		"matrix: {tunnel: wireguard, link_mtu: [1500, 9000]}\ninclude: [{tunnel: wireguard}, {tunnel: " +
			"wireguard, mtu: 1420}]",
		"mtu link_mtu",
		[]string{"mtu=1420 link_mtu=1500", "mtu=8920 link_mtu=9000", "mtu=1420"},
	},
	{
		"the smallest link counts",
		"matrix: {tunnel: wireguard, link_mtu@router.wan: [1400, 9000]}", "mtu",
		[]string{"mtu=1320", "mtu=1420"},
	},
	{
		"tcp has no packets, udp no congestion control",
		"matrix: {protocol: [tcp, udp], packet_size: [64, 128], congestion: [cubic, reno], rate: [1M, flat]}",
		"protocol packet_size congestion rate",
		[]string{"protocol=tcp congestion=cubic", "protocol=tcp congestion=reno",
			"protocol=udp packet_size=64 rate=1M", "protocol=udp packet_size=64 rate=flat",
			"protocol=udp packet_size=128 rate=1M", "protocol=udp packet_size=128 rate=flat"},
	},
	{
		"udp fills the path by default",
		"matrix: {protocol: udp, tunnel: [none, wireguard]}", "tunnel packet_size rate",
		[]string{"tunnel=none packet_size=1500 rate=flat", "tunnel=wireguard packet_size=1420 rate=flat"},
	},
	{
		"a frame is its packet and 18 bytes",
		"matrix: {protocol: udp, frame_size: [64, 1518]}", "frame_size packet_size",
		[]string{"frame_size=64 packet_size=46", "frame_size=1518 packet_size=1500"},
	},
	{
		"a mix is one level, of packets and of frames",
		"include: [{protocol: udp, packet_size: [imix, 200]}, {protocol: udp, ip: [4, 6], frame_size: imix}]",
		"ip frame_size packet_size",
		[]string{"ip=4 packet_size=imix", "ip=4 packet_size=200", "ip=4 frame_size=imix packet_size=imix",
			"ip=6 frame_size=imix packet_size=imix"},
	},
	{
		"a set of sizes is a list",
		"matrix: {protocol: udp, frame_size: [imix, rfc2544, 900]}\ninclude: [{protocol: udp, ip: 6, " +
			"frame_size: rfc2544}]\n" +
			"exclude: [{ip: 6, frame_size: [64, 128, 256, 512]}]", "ip frame_size",
		[]string{"ip=4 frame_size=imix", "ip=4 frame_size=64", "ip=4 frame_size=128", "ip=4 frame_size=256",
			"ip=4 frame_size=512",
			"ip=4 frame_size=1024", "ip=4 frame_size=1280", "ip=4 frame_size=1518", "ip=4 frame_size=900",
			"ip=6 frame_size=1024", "ip=6 frame_size=1280", "ip=6 frame_size=1518"},
	},
	{
		"include overrides defaults, not the matrix, and duplicates merge",
		"matrix: {streams: [1, 4], ip: 6}\ninclude: [{streams: [1, 4]}, {streams: 4, ip: 6}]", "streams ip",
		[]string{"streams=1 ip=6", "streams=4 ip=6", "streams=1 ip=4", "streams=4 ip=4"},
	},
	{
		"exclude removes what has all its levels, also defaults",
		"matrix: {streams: [1, 2, 4], direction: [up, down]}\ninclude: [{nat: masquerade}]\n" +
			"exclude: [{streams: [1, 2], direction: down}, {nat: masquerade, ip: 4}]", "streams direction",
		[]string{"streams=1 direction=up", "streams=2 direction=up", "streams=4 direction=up",
			"streams=4 direction=down"},
	},
	{
		"a place that the topology lacks means nothing",
		"matrix: {topology: [forward, site-to-site], queue@router-a.wan: [noqueue, pfifo]}",
		"topology queue@router-a.wan",
		[]string{"topology=forward", "topology=site-to-site queue@router-a.wan=noqueue",
			"topology=site-to-site queue@router-a.wan=pfifo"},
	},
	{
		"what the place decides: without one, a queue is the router's",
		"matrix: {topology: [forward, direct], queue: [noqueue, pfifo]}\ninclude: [{topology: direct, " +
			"queue@client: pfifo}]",
		"topology queue queue@client",
		[]string{"topology=forward queue=noqueue", "topology=forward queue=pfifo", "topology=direct",
			"topology=direct queue@client=pfifo"},
	},
}

func TestExpansion(t *testing.T) {
	for _, tc := range expansions {
		t.Run(tc.name, func(t *testing.T) {
			p := read(t, tc.text)
			diff := cmp.Diff(tc.want, pick(p.Cells(), strings.Fields(tc.show)...))
			if diff != "" {
				t.Errorf("cells (-want +got):\n%s", diff)
			}

			if len(p.Skipped()) > 0 {
				t.Errorf("got skipped %v, want none", p.Skipped())
			}
		})
	}
}

func TestSkipsWithReason(t *testing.T) {
	for _, tc := range []struct{ cell, want string }{
		{"protocol: udp, packet_size: 55", ""},
		{"protocol: udp, packet_size: 44", ""},
		{"protocol: udp, packet_size: 43",
			"an IPv4 packet of 43 bytes is too small: IP, UDP and our own header need 44"},
		{"protocol: udp, packet_size: 55, ip: 6",
			"an IPv6 packet of 55 bytes is too small: IP, UDP and our own header need 64"},
		{"protocol: udp, packet_size: 64, ip: 6", ""},
		{"protocol: udp, frame_size: 64", ""},
		{"protocol: udp, frame_size: 64, ip: 6",
			"a frame of 64 bytes (an IPv6 packet of 46) is too small: IP, UDP and our own header need 64"},
		{"protocol: udp, packet_size: 1500", ""},
		{"protocol: udp, packet_size: 1501",
			"an IPv4 packet of 1501 bytes does not fit the path's MTU of 1500, and fragmentation is not " +
				"measured"},
		{"protocol: udp, packet_size: 1421, tunnel: wireguard",
			"an IPv4 packet of 1421 bytes does not fit the path's MTU of 1420, and fragmentation is not " +
				"measured"},
		{"protocol: udp, packet_size: 9000, link_mtu: 9000", ""},
		{"protocol: udp, packet_size: imix, rate: 20M, streams: 4", ""},
		{"protocol: udp, packet_size: imix, ip: 6", ""},
		{"protocol: udp, packet_size: imix, udp_mode: exact", ""},
		{"protocol: udp, packet_size: imix, udp_mode: count",
			"count mode sends and counts batches of packets of one size: imix needs udp_mode: exact"},
		{"protocol: udp, frame_size: imix, engine: iperf3",
			"engine iperf3 sends packets of one size: imix needs engine: native or xdp"},
		{"protocol: udp, packet_size: imix, tunnel: wireguard",
			"imix has packets of 1500 bytes, which do not fit the path's MTU of 1420, and fragmentation is " +
				"not measured"},
		{"protocol: udp, packet_size: imix, tunnel: wireguard, mtu: 1500, link_mtu: 1600", ""},
		{"tunnel: wireguard, mtu: 9000", ""}, // fragments the underlay's packets, and that will show
		{"tunnel: wireguard, mtu: 1279, ip: 6", "IPv6 needs an MTU of 1280 bytes or more, the path has 1279"},
		{"tunnel: wireguard, mtu: 1279", ""},
		{"protocol: udp, packet_size: 1401, tunnel: wireguard, mtu: 1420, link_mtu: 1400",
			"an IPv4 packet of 1401 bytes does not fit the path's MTU of 1400, and fragmentation is not " +
				"measured"},
		{"protocol: udp, packet_size: 1420, tunnel: wireguard, mtu: 1420, link_mtu: 1400, topology: " +
			"to-router", ""},
		{"link_mtu: 1000, ip: 6", "IPv6 needs an MTU of 1280 bytes or more, the path has 1000"},
		{"tunnel: wireguard, link_mtu: 600",
			"the underlay leaves 520 bytes inside the tunnel, and IPv4 needs 576"},
		{"tunnel: wireguard, outer_ip: 6", ""},
		{"tunnel: wireguard, outer_ip: 6, link_mtu: 1279",
			"IPv6 outside the tunnel needs links of 1280 bytes or more, there are some of 1279"},
		{"tunnel: wireguard, tunnels: 8, streams: 8", ""},
		{"tunnel: wireguard, tunnels: 8", "8 tunnels need as many streams, there is 1"},
		{"tunnel: wireguard, tunnels: 8, streams: 7", "8 tunnels need as many streams, there are 7"},
		{"tunnel: wireguard, tunnels: 2, streams: 2, engine: iperf3",
			"iperf3 sends all its streams to one address, and each tunnel leads to another"},
		{"tunnel: wireguard, tunnels: 1, streams: 2, engine: iperf3", ""},
		{"nat: masquerade", ""},
		{"nat: forward", ""},
		{"nat: masquerade, tunnel: wireguard", ""},
		{"nat: forward, tunnel: wireguard",
			"a port forward leads to the client's own address, past the tunnel"},
		{"nat: masquerade, ip: 6", ""}, // which passes untranslated
		{"nat: forward, ip: 6", "NAT66 is off: ports are forwarded with IPv4 only"},
		{"nat: masquerade, topology: to-router",
			"topology to-router forwards nothing that could be translated"},
		{"nat: masquerade, topology: site-to-site", ""},
		{"nat: masquerade, topology: site-to-site, tunnel: wireguard",
			"the tunnel between the routers carries the traffic past the address translation"},
	} {
		p := read(t, "matrix: {streams: 7}\ninclude: [{"+tc.cell+"}]\n")
		got := ""
		if len(p.Skipped()) == 1 {
			got = p.Skipped()[0].Reason
		}

		if got != tc.want {
			t.Errorf("{%s}: skipped because %q, want %q", tc.cell, got, tc.want)
		}

		if got, want := len(p.Cells())+len(p.Skipped()), 2; got != want {
			t.Errorf("{%s}: %d cells and skips, want %d", tc.cell, got, want)
		}
	}
}

// TestTunnelFactorsMeanNothingWithoutTunnel: their levels are one cell there.
func TestTunnelFactorsMeanNothingWithoutTunnel(t *testing.T) {
	p := read(t, "matrix: {tunnel: [none, wireguard], tunnels: [1, 16], outer_ip: [4, 6], streams: 16}\n")
	var got []string
	for _, c := range p.Cells() {
		got = append(got, c["tunnel"]+" "+c["tunnels"]+" "+c["outer_ip"])
	}

	want := []string{"none  ", "wireguard 1 4", "wireguard 1 6", "wireguard 16 4", "wireguard 16 6"}
	diff := cmp.Diff(want, got)
	if diff != "" {
		t.Errorf("cells (-want +got):\n%s", diff)
	}
}

func TestFactorsAreListedAsWritten(t *testing.T) {
	p := read(t, "matrix: {streams: [4, 1], ip: 4}\ninclude: [{streams: [1, 8], nat: masquerade}]\n")
	want := []record.FactorLevels{
		{Name: "streams", Levels: []string{"4", "1", "8"}}, {Name: "ip", Levels: []string{"4"}},
		{Name: "nat", Levels: []string{"masquerade"}},
	}
	if diff := cmp.Diff(want, p.Design.Factors); diff != "" {
		t.Errorf("factors (-want +got):\n%s", diff)
	}

	if diff := cmp.Diff(p.Cells()[0], p.Design.Baseline); diff != "" {
		t.Errorf("baseline (-want +got):\n%s", diff)
	}
}
