package overhead

import (
	"fmt"
	"math"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/labtest/expect"
)

func wireguard(outer IP, mtu int) Tunnel { return Tunnel{Kind: WireGuard, OuterIP: outer, MTU: mtu} }

func esp(s Suite, outer IP, natt bool) Tunnel {
	return Tunnel{Kind: ESP, OuterIP: outer, Suite: s, NATT: natt}
}

// tcpShare is the share of a rate, counted at a layer, that is left for the payload of full TCP segments
// with or without time stamps. The reverse stream of acknowledgements is not in it: on a full-duplex link it
// costs nothing here.
func tcpShare(p Path, timestamps bool, at Layer) float64 {
	payload := p.MTU() - p.Inner.Header() - TCPHeader
	if timestamps {
		payload -= TCPTimestamps
	}

	n := p.Bytes(p.MTU(), at)
	if n == 0 || payload < 0 {
		return 0
	}

	return float64(payload) / float64(n)
}

// The table of goodput shares: TCP with time stamps over an underlay of 1500 bytes unless said otherwise. A
// zero v6 is a field that the table leaves out.
func TestGoodputShare(t *testing.T) {
	eth := Link{MTU: 1500}
	pppoe := Link{MTU: 1492, PPPoE: true}
	tests := []struct {
		name       string
		link       Link
		tunnel     Tunnel
		mtu, outer int
		v4, v6     float64
	}{
		{"none", eth, Tunnel{}, 1500, 1500, 94.15, 92.85},
		{"jumbo", Link{MTU: 9000}, Tunnel{}, 9000, 9000, 99.00, 0},
		{"vlan", Link{MTU: 1500, VLANs: 1}, Tunnel{}, 1500, 1500, 93.90, 0},
		{"pppoe", pppoe, Tunnel{}, 1492, 1492, 93.63, 0},
		{"wireguard v4 default", eth, wireguard(V4, 1420), 1420, 1480, 90.12, 88.80},
		{"wireguard v4 fit", eth, wireguard(V4, 1440), 1440, 1500, 90.25, 88.95},
		{"wireguard v6 default", eth, wireguard(V6, 1420), 1420, 1500, 88.95, 87.65},
		{"wireguard v4 too large", eth, wireguard(V4, 1500), 1500, 1560, 87.44, 0},
		{"esp gcm v4", eth, esp(espAEAD, V4, false), 1446, 1500, 90.64, 89.34},
		{"esp gcm v4 nat-t", eth, esp(espAEAD, V4, true), 1438, 1500, 90.12, 88.82},
		{"esp gcm v6", eth, esp(espAEAD, V6, false), 1426, 1500, 89.34, 88.04},
		{"esp gcm v6 nat-t", eth, esp(espAEAD, V6, true), 1418, 1500, 88.82, 87.52},
		{"esp cbc sha256 v4", eth, esp(aesCBC(16), V4, false), 1438, 1500, 90.12, 88.82},
		{"esp cbc sha256 v4 nat-t", eth, esp(aesCBC(16), V4, true), 1422, 1492, 89.54, 88.24},
		{"openvpn udp v4", eth, Tunnel{Kind: OpenVPNUDP}, 1448, 1500, 90.77, 89.47},
		{"openvpn udp v6", eth, Tunnel{Kind: OpenVPNUDP, OuterIP: V6}, 1428, 1500, 89.47, 88.17},
		{"openvpn tcp v4", eth, Tunnel{Kind: OpenVPNTCP}, 1422, 1500, 89.08, 87.78},
		{"openvpn tcp v4 1500", eth, Tunnel{Kind: OpenVPNTCP, MTU: 1500}, 1500, 1578, 89.33, 88.09},
		{"openvpn tcp v4 6000", eth, Tunnel{Kind: OpenVPNTCP, MTU: 6000}, 6000, 6078, 92.92, 92.61},
		{"openvpn 1500 fragmented", eth, Tunnel{Kind: OpenVPNUDP, MTU: 1500}, 1500, 1552, 87.86, 0},
		{"openvpn 6000 fragmented", eth, Tunnel{Kind: OpenVPNUDP, MTU: 6000}, 6000, 6052, 94.08, 0},
		{"pppoe wireguard v4", pppoe, wireguard(V4, 1432), 1432, 1492, 89.73, 0},
		{"pppoe wireguard v6", pppoe, wireguard(V6, 1412), 1412, 1492, 88.43, 0},
		{"pppoe esp gcm v4", pppoe, esp(espAEAD, V4, false), 1438, 1492, 90.12, 0},
		{"pppoe openvpn udp v4", pppoe, Tunnel{Kind: OpenVPNUDP}, 1440, 1492, 90.25, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			p := Path{Link: test.link, Tunnel: test.tunnel}
			expect.Same(t, "MTU", test.mtu, p.MTU())
			got := p.Tunnel.Outer(test.mtu)
			if got != test.outer {
				t.Errorf("Outer(%d) = %d, want %d", test.mtu, got, test.outer)
			}

			percent(t, "inner v4", tcpShare(p, true, LayerWire), test.v4)
			if p.Inner = V6; test.v6 != 0 {
				percent(t, "inner v6", tcpShare(p, true, LayerWire), test.v6)
			}
		})
	}

	percent(t, "no time stamps", tcpShare(Path{Link: eth}, false, LayerWire), 94.93)
}

func percent(t *testing.T, what string, got, want float64) {
	t.Helper()
	g, w := fmt.Sprintf("%.2f", got*100), fmt.Sprintf("%.2f", want)
	if g != w {
		t.Errorf("%s = %s %%, want %s %%", what, g, w)
	}
}

func TestFitMTU(t *testing.T) {
	tests := []struct {
		name     string
		tunnel   Tunnel
		underlay int
		want     int
	}{
		{"wireguard v4", Tunnel{Kind: WireGuard}, 1500, 1440},
		{"wireguard v6", Tunnel{Kind: WireGuard, OuterIP: V6}, 1500, 1420},
		{"wireguard v4 pppoe", Tunnel{Kind: WireGuard}, 1492, 1432},
		{"wireguard v6 pppoe", Tunnel{Kind: WireGuard, OuterIP: V6}, 1492, 1412},
		{"plain", Tunnel{}, 1500, 1500},
		{"no room", Tunnel{Kind: WireGuard, OuterIP: V6}, 60, 0},
	}
	for _, test := range tests {
		got := test.tunnel.FitMTU(test.underlay)
		if got != test.want {
			t.Errorf("%s: FitMTU(%d) = %d, want %d", test.name, test.underlay, got, test.want)
		}
	}
}

// TestFitMTUOfStack has the largest packets that Linux sends whole. A carrier's padding stops at its device's
// MTU, so an MTU that is no multiple of 16 costs nothing.
func TestFitMTUOfStack(t *testing.T) {
	tests := []struct {
		names    string
		outer    IP
		underlay int
		want     int
	}{
		{"gre+wireguard", V4, 1492, 1408},
		{"vxlan+wireguard", V6, 1500, 1350},
		{"ipip+wireguard", V6, 1500, 1380},
		{"gre+wireguard", V4, 1480, 1396},
		{"wireguard+wireguard", V4, 1492, 1372},
		{"wireguard+wireguard+wireguard", V4, 1492, 1312},
		{"wireguard+gre", V4, 1492, 1408},
		{"gre+wireguard", V4, 80, 0},
	}
	for _, tt := range tests {
		tunnel, ok := Stacked(tt.names, tt.outer)
		if !ok {
			t.Fatalf("%s is not known", tt.names)
		}

		got := tunnel.FitMTU(tt.underlay)
		if got != tt.want {
			t.Errorf("%s over IPv%d on %d: got an MTU of %d, want %d", tt.names, tt.outer, tt.underlay, got,
				tt.want)
		}

		if got == 0 {
			continue
		}

		tunnel.MTU = got
		if n := len(tunnel.Fragments(got, tt.underlay)); n != 1 {
			t.Errorf("%s on %d: a packet of %d bytes is cut into %d", tt.names, tt.underlay, got, n)
		}

		wire := Path{Link: Link{MTU: tt.underlay}, Tunnel: tunnel}
		parts := sum(wire.Whole(got, Part{"TCP", TCPHeader}))
		if parts != wire.Bytes(got, LayerWire) {
			t.Errorf("%s on %d: the parts of a packet are %d bytes, it takes %d", tt.names, tt.underlay,
				parts, wire.Bytes(got, LayerWire))
		}

		tunnel.MTU = got + 1
		if n := len(tunnel.Fragments(got+1, tt.underlay)); n < 2 {
			t.Errorf("%s on %d: a packet of %d bytes crosses whole too", tt.names, tt.underlay, got+1)
		}
	}
}

// An acknowledgement of 52 bytes: padded to 64, 124 outside, 162 on the wire.
func TestInnerAck(t *testing.T) {
	p := Path{Tunnel: wireguard(V4, 1420)}
	expect.Same(t, "Outer(52)", 124, p.Tunnel.Outer(52))
	expect.Same(t, "Bytes(52)", 162, p.Bytes(52, LayerWire))
}

func TestPaddingBeyondMTU(t *testing.T) {
	tests := []struct{ mtu, m, want int }{
		{1420, 1420, 1480}, {1420, 1419, 1480}, {1420, 1400, 1468}, {1420, 1, 76},
		{1420, 2841, 1420*2 + 16 + 60}, // larger than the MTU: only the last unit is padded
		{0, 1420, 1424 + 60},
	}
	for _, test := range tests {
		got := wireguard(V4, test.mtu).Outer(test.m)
		if got != test.want {
			t.Errorf("mtu %d: Outer(%d) = %d, want %d", test.mtu, test.m, got, test.want)
		}
	}
}

func TestFragments(t *testing.T) {
	tests := []struct {
		name    string
		v       IP
		l3, mtu int
		want    []int
	}{
		{"fits", V4, 1500, 1500, []int{1500}},
		{"one too many", V4, 1501, 1500, []int{1500, 21}},
		{"openvpn 1500", V4, 1552, 1500, []int{1500, 72}},
		{"openvpn 6000", V4, 6052, 1500, []int{1500, 1500, 1500, 1500, 132}},
		{"not a multiple of 8", V4, 1600, 1499, []int{1492, 128}},
		{"v6", V6, 1580, 1500, []int{1496, 140}},
		{"no room", V4, 100, 24, nil},
	}
	for _, test := range tests {
		expect.Same(t, test.name, test.want, Fragments(test.v, test.l3, test.mtu))
	}
}

// A tunnel's outer packets, by the worked figures of docs/method/ceilings.md.
func TestTunnelFragments(t *testing.T) {
	tests := []struct {
		name   string
		tunnel Tunnel
		m      int
		want   []int
	}{
		{"openvpn fits", Tunnel{Kind: OpenVPNUDP}, 1448, []int{1500}},
		{"openvpn one too many", Tunnel{Kind: OpenVPNUDP}, 1449, []int{1500, 21}},
		{"openvpn 1500", Tunnel{Kind: OpenVPNUDP}, 1500, []int{1500, 72}},
		{"openvpn 6000", Tunnel{Kind: OpenVPNUDP}, 6000, []int{1500, 1500, 1500, 1500, 132}},
		{"openvpn 6000 over IPv6", Tunnel{Kind: OpenVPNUDP, OuterIP: V6}, 6000, []int{1496, 1496, 1496, 1496,
			288}},
		{"openvpn ack", Tunnel{Kind: OpenVPNUDP}, 52, []int{104}},
		{"wireguard 1500", wireguard(V4, 1500), 1500, []int{1500, 80}},
		{"openvpn over tcp", Tunnel{Kind: OpenVPNTCP}, 6000, nil},
		{"plain", Tunnel{}, 1500, []int{1500}},
	}
	for _, test := range tests {
		expect.Same(t, test.name, test.want, test.tunnel.Fragments(test.m, 1500))
	}
}

// A record costs its share of full segments, whatever its length.
func TestBytesInAStream(t *testing.T) {
	p := Path{Tunnel: Tunnel{Kind: OpenVPNTCP}}
	for m, want := range map[int]int{1422: 1538, 2870: 2 * 1538, 698: 769, 6000: 6401} {
		got := p.Bytes(m, LayerWire)
		if got != want {
			t.Errorf("Bytes(%d) = %d, want %d", m, got, want)
		}
	}

	p.Link.MTU = 52
	if got := p.Bytes(1422, LayerWire); got != 0 {
		t.Errorf("without room for payload: %d bytes, want 0", got)
	}
}

func TestLineRate(t *testing.T) {
	tests := []struct {
		rate  float64
		frame int
		want  float64
	}{
		{1e9, 64, 1488095}, {1e9, 128, 844595}, {1e9, 256, 452899}, {1e9, 512, 234962},
		{1e9, 1024, 119732}, {1e9, 1280, 96154}, {1e9, 1518, 81274},
		{2.5e9, 64, 3720238}, {10e9, 64, 14880952}, {25e9, 64, 37202381}, {100e9, 64, 148809524},
	}
	for _, test := range tests {
		got := math.Round(Path{}.PacketRate(test.rate, test.frame-Ethernet-FCS, LayerWire))
		if got != test.want {
			t.Errorf("frames of %d bytes at %g bit/s: got %.0f a second, want %.0f", test.frame, test.rate,
				got, test.want)
		}
	}
}

func TestShaperLayer(t *testing.T) {
	p := Path{Link: Link{MTU: 1500}}
	// tbf counts 1514 bytes for a full segment with 1448 bytes of payload.
	expect.Same(t, "TCP at the frame layer", 1448.0/1514, tcpShare(p, true, LayerFrame))
	expect.Same(t, "TCP at the IP layer", 1448.0/1500, tcpShare(p, true, LayerIP))
	expect.Same(t, "Frame", 1514, (Link{PPPoE: true, VLANs: 1}).Frame(1492))
	// Small packets are padded on the wire but not in a queue.
	expect.Same(t, "Bytes at the frame layer", 42, p.Bytes(28, LayerFrame))
	expect.Same(t, "Bytes on the wire", 84, p.Bytes(28, LayerWire))
	expect.Same(t, "PacketRate", 1e9/8/84, p.PacketRate(1e9, 46, LayerWire))
}

// Whatever the sizes, fragments carry exactly the payload and fit the link.
func FuzzFragments(f *testing.F) {
	f.Add(4, 1552, 1500)
	f.Add(6, 65535, 1280)
	f.Fuzz(func(t *testing.T, version, l3, mtu int) {
		v := V4
		if version%2 == 0 && version != 4 {
			v = V6
		}

		l3 = l3 & 0xffff
		mtu = mtu & 0xffff
		if l3 < v.Header() {
			return
		}

		parts := Fragments(v, l3, mtu)
		if len(parts) < 2 {
			return
		}

		each := v.Header()
		sum := 0
		if v == V6 {
			each += IPv6Fragment
		}

		for i, n := range parts {
			if n > mtu || n <= each || (i < len(parts)-1 && (n-each)%8 != 0) {
				t.Fatalf("Fragments(%d, %d, %d): part %d is %d bytes", v, l3, mtu, i, n)
			}

			sum += n - each
		}

		if sum != l3-v.Header() {
			t.Fatalf("Fragments(%d, %d, %d) carry %d bytes, want %d", v, l3, mtu, sum, l3-v.Header())
		}
	})
}
