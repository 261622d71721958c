package overhead

import "strings"

// Encapsulation is a way of putting IP packets into IP packets.
type Encapsulation int

// The encapsulations.
const (
	Plain      Encapsulation = iota // no tunnel
	WireGuard                       // whitepaper §5.4.6
	ESP                             // RFC 4303 tunnel mode, see Tunnel.ESP
	OpenVPNUDP                      // AEAD, DATA_V2
	OpenVPNTCP                      // the same over TCP, one record per segment
)

// Suite is what an ESP transform adds: initialisation vector, integrity check value and the block that
// payload and trailer are padded to.
type Suite struct{ IV, Block, ICV int }

// Suites of ESP in use. GCM, CCM and ChaCha20-Poly1305 are alike on the wire: RFC 4106, RFC 4309, RFC 7634.
// CBC is RFC 3602 with RFC 2404 or RFC 4868.
var (
	ESPAEAD      = Suite{IV: 8, Block: 1, ICV: 16}
	ESPCBCSHA256 = Suite{IV: 16, Block: 16, ICV: 16}
)

// Fixed lengths of the encapsulations.
const (
	wireGuardHeader = 16 // type and reserved 4, receiver 4, counter 8
	wireGuardTag    = 16 // Poly1305
	wireGuardPad    = 16 // drivers/net/wireguard/messages.h MESSAGE_PADDING_MULTIPLE
	espHeader       = 8  // SPI and sequence number
	espTrailer      = 2  // pad length and next header
	openVPNOpcode   = 4  // opcode and 24-bit peer id: drivers/net/ovpn/proto.h
	openVPNPacketID = 4
	openVPNTag      = 16
	openVPNLength   = 2 // record length on TCP
)

// Tunnel is one encapsulation with its parameters. The zero value is plain IP.
type Tunnel struct {
	Kind    Encapsulation
	OuterIP IP    // of the packets outside; 0 = 4
	MTU     int   // inner MTU; WireGuard never pads beyond it, 0 = unlimited
	Suite   Suite // of ESP
	NATT    bool  // ESP inside UDP, RFC 3948
}

// Outer is the L3 length of the packet that carries an inner packet of m bytes, before any fragmentation.
func (t Tunnel) Outer(m int) int {
	ip := t.OuterIP.Header()
	switch t.Kind {
	case WireGuard:
		return t.padded(m) + wireGuardHeader + wireGuardTag + UDPHeader + ip
	case ESP:
		n := ip + espHeader + t.Suite.IV + roundUp(m+espTrailer, max(4, t.Suite.Block)) + t.Suite.ICV
		if t.NATT {
			n += UDPHeader
		}
		return n
	case OpenVPNUDP:
		return m + openVPNOpcode + openVPNPacketID + openVPNTag + UDPHeader + ip
	case OpenVPNTCP:
		return m + openVPNOpcode + openVPNPacketID + openVPNTag + openVPNLength + TCPHeader +
			TCPTimestamps + ip
	}
	return m
}

// Fragments are the L3 lengths of the packets in which an inner packet of m bytes crosses an underlay: one
// that carries it, or the IP fragments of that one, where nothing keeps the sender from making them.
// OpenVPN's tun-mtu 1500 with mssfix 0 gives 1500 and 72 bytes over IPv4, 6000 gives four of 1500 and one
// of 132. There are none, nil, where an encapsulation is a stream: TCP makes segments that fit.
func (t Tunnel) Fragments(m, underlay int) []int {
	if t.Kind == OpenVPNTCP {
		return nil
	}
	return Fragments(t.OuterIP, t.Outer(m), underlay)
}

// padded follows calculate_skb_padding of drivers/net/wireguard/send.c.
func (t Tunnel) padded(m int) int {
	p := roundUp(m, wireGuardPad)
	if t.MTU <= 0 {
		return p
	}
	if m > t.MTU {
		last := m % t.MTU
		return m - last + min(t.MTU, roundUp(last, wireGuardPad))
	}
	return min(t.MTU, p)
}

// FitMTU is the largest inner MTU whose packets cross an underlay without being fragmented; 0 if there is
// none.
func (t Tunnel) FitMTU(underlay int) int {
	for m := underlay; m > 0; m-- {
		// The tunnel's MTU bounds its padding, so it is part of the question.
		t.MTU = m
		if t.Outer(m) <= underlay {
			return m
		}
	}
	return 0
}

func roundUp(x, n int) int { return (x + n - 1) / n * n }

// families are the encapsulations by the beginning of a tunnel's name in a plan, such as "esp-aes-gcm-256";
// the first that fits counts.
var families = []struct {
	name   string
	tunnel Tunnel
}{
	{"wireguard", Tunnel{Kind: WireGuard}},
	{"esp-aead-natt", Tunnel{Kind: ESP, Suite: ESPAEAD, NATT: true}},
	{"esp-aes-cbc-sha256", Tunnel{Kind: ESP, Suite: ESPCBCSHA256}},
	{"esp-cbc-sha256", Tunnel{Kind: ESP, Suite: ESPCBCSHA256}},
	{"esp", Tunnel{Kind: ESP, Suite: ESPAEAD}},
	{"openvpn-tcp", Tunnel{Kind: OpenVPNTCP}},
	{"openvpn", Tunnel{Kind: OpenVPNUDP}},
}

// Named is the encapsulation of a kind of tunnel by the name that plans give it, such as "wireguard-kernel"
// or "esp"; false if there is none such. The version outside and the MTU are left open.
func Named(kind string) (Tunnel, bool) {
	for _, f := range families {
		if kind == f.name || strings.HasPrefix(kind, f.name+"-") {
			return f.tunnel, true
		}
	}
	return Tunnel{}, false
}

// TunnelMTU is the inner MTU that a kind of tunnel takes by itself: what fits over the version of IP outside
// (4 or 6), but for WireGuard, of which wg-quick(8) leaves room for IPv6 in any case.
func TunnelMTU(kind string, outerIP, linkMTU int) int {
	t, ok := Named(kind)
	if !ok || t.Kind == WireGuard {
		return linkMTU - 80
	}
	t.OuterIP = IP(outerIP)
	return t.FitMTU(linkMTU)
}
