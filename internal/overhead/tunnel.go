package overhead

import (
	"fmt"
	"slices"
	"strings"
)

// Encapsulation is a method to encapsulate IP packets.
type Encapsulation int

// These are the methods of encapsulation.
const (
	Plain      Encapsulation = iota // no tunnel
	WireGuard                       // whitepaper §5.4.6
	ESP                             // RFC 4303 tunnel mode; see Tunnel.Suite
	OpenVPNUDP                      // DATA_V2; AEAD unless Tunnel.Suite is set
	OpenVPNTCP                      // like OpenVPNUDP, but over TCP, one record per segment
	VXLAN                           // RFC 7348: an Ethernet frame in UDP
	GRE                             // RFC 2784 without checksum, RFC 2890 without key
	IPIP                            // RFC 2003, RFC 4213 (6in4), RFC 2473
)

// Suite holds the parameters of a cipher suite, in bytes: the length of the initialisation vector, the
// block size to which payload and trailer are padded, and the length of the integrity check value (for
// OpenVPN, the HMAC).
type Suite struct{ IV, Block, ICV int }

// espAEAD is the suite of ESP with GCM (RFC 4106), CCM (RFC 4309) and ChaCha20-Poly1305 (RFC 7634), which
// have the same format on the wire.
var espAEAD = Suite{IV: 8, Block: 1, ICV: 16}

// aesCBC returns the suite of AES in CBC mode. In ESP, it follows RFC 3602, with the integrity check of RFC
// 2404 or RFC 4868. OpenVPN does not truncate the HMAC.
func aesCBC(icv int) Suite { return Suite{IV: 16, Block: 16, ICV: icv} }

// These are the lengths of headers and trailers, in bytes.
const (
	wireGuardHeader = 16 // type and reserved bytes 4, receiver 4, counter 8
	wireGuardTag    = 16 // Poly1305
	wireGuardPad    = 16 // MESSAGE_PADDING_MULTIPLE in drivers/net/wireguard/messages.h
	espHeader       = 8  // SPI and sequence number
	espTrailer      = 2  // pad length and next header
	openVPNOpcode   = 4  // opcode and 24-bit peer id (drivers/net/ovpn/proto.h)
	openVPNPacketID = 4
	openVPNLength   = 2 // record length, only on TCP
	vxlanHeader     = 8
	greHeader       = 4
)

// Tunnel describes an encapsulation and its parameters. The zero value is plain IP.
type Tunnel struct {
	Kind    Encapsulation
	OuterIP IP      // IP version of the outer packets; 0 means 4
	MTU     int     // inner MTU, beyond which WireGuard never pads; 0 means unlimited
	Suite   Suite   // required for ESP; for OpenVPN, zero means AEAD
	NATT    bool    // ESP in UDP (RFC 3948)
	Via     *Tunnel // tunnel that carries the outer packets, or nil
}

// Part describes a part of a packet: a header, padding, a trailer or the payload.
type Part struct {
	Name  string `json:"name"`
	Bytes int    `json:"bytes"`
}

// Around returns the parts of an outer packet that precede an inner packet of m bytes, the outermost
// first, and the parts that follow it.
func (t Tunnel) Around(m int) (before, after []Part) {
	before = []Part{{fmt.Sprint("IPv", max(V4, t.OuterIP)), t.OuterIP.Header()}}
	udp := Part{"UDP", UDPHeader}
	tag := Part{"tag", wireGuardTag}
	switch t.Kind {
	case Plain:
		return nil, nil
	case WireGuard:
		before, after = append(before, udp, Part{"WireGuard", wireGuardHeader}),
			[]Part{{"padding", t.padded(m) - m}, tag}
	case ESP:
		if t.NATT {
			before = append(before, udp)
		}

		padded := roundUp(m+espTrailer, max(4, t.Suite.Block))
		before = append(before, Part{"ESP", espHeader}, Part{"IV", t.Suite.IV})
		after = []Part{{"padding", padded - m - espTrailer}, {"ESP trailer", espTrailer},
			{"ICV", t.Suite.ICV}}
	case OpenVPNUDP, OpenVPNTCP:
		transport := []Part{udp}
		if t.Kind == OpenVPNTCP {
			transport = []Part{{"TCP with timestamps", TCPHeader + TCPTimestamps},
				{"record length", openVPNLength}}
		}

		before = append(append(before, transport...), Part{"OpenVPN", openVPNOpcode})
		id := Part{"packet id", openVPNPacketID}
		if t.Suite == (Suite{}) {
			before = append(before, id, tag)
			break
		}

		// PKCS #7 adds at least one byte of padding (RFC 5652 §6.3).
		padded := roundUp(openVPNPacketID+m+1, t.Suite.Block)
		before = append(before, Part{"HMAC", t.Suite.ICV}, Part{"IV", t.Suite.IV}, id)
		after = []Part{{"padding", padded - openVPNPacketID - m}}
	case VXLAN:
		before = append(before, udp, Part{"VXLAN", vxlanHeader}, Part{"Ethernet", Ethernet})
	case GRE:
		before = append(before, Part{"GRE", greHeader})
	}

	if t.Via != nil {
		b, a := t.Via.Around(sum(before) + m + sum(after))
		before, after = append(b, before...), append(after, a...)
	}

	return before, after
}

func sum(parts []Part) (n int) {
	for _, p := range parts {
		n += p.Bytes
	}
	return n
}

// Outer returns the L3 length of the packet that carries an inner packet of m bytes, before fragmentation.
func (t Tunnel) Outer(m int) int {
	before, after := t.Around(m)
	return sum(before) + m + sum(after)
}

// Fragments returns the L3 lengths of the packets on the underlay for an inner packet of m bytes: the length
// of the outer packet or of its IP fragments, provided that the sender may fragment. For example, OpenVPN
// with tun-mtu 1500 and mssfix 0 sends packets of 1500 and 72 bytes over IPv4; with tun-mtu 6000, it sends
// four packets of 1500 bytes and one of 132. If another tunnel carries the packets, they are first fragmented
// to the MTU of that tunnel. Fragments returns nil for a tunnel over TCP, because TCP adapts the length of
// its segments.
func (t Tunnel) Fragments(m, underlay int) []int {
	switch {
	case t.Kind == OpenVPNTCP:
		return nil
	case t.Via == nil:
		return Fragments(t.OuterIP, t.Outer(m), underlay)
	}

	t = t.Over(underlay)
	via := *t.Via
	own := t
	own.Via = nil
	var out []int
	for _, part := range Fragments(t.OuterIP, own.Outer(m), via.MTU) {
		out = append(out, via.Fragments(part, underlay)...)
	}

	return out
}

// padded returns the length of an inner packet after WireGuard's padding, like calculate_skb_padding in
// drivers/net/wireguard/send.c.
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

// FitMTU returns the largest inner MTU whose packets cross the underlay unfragmented, or 0 if there is no
// such MTU.
func (t Tunnel) FitMTU(underlay int) int {
	room, own := underlay, t
	if t.Via != nil {
		room = t.Over(underlay).Via.MTU
		own.Via = nil
	}

	for m := room; m > 0; m-- {
		// The MTU limits the padding, so Outer depends on it.
		own.MTU = m
		if own.Outer(m) <= room {
			return m
		}
	}

	return 0
}

// Over returns a copy of t in which each carrier has an MTU. A carrier without an MTU gets the largest MTU
// that fits the underlay. If a carrier has no MTU, lengths are inexact, because the MTU limits the carrier's
// padding.
func (t Tunnel) Over(underlay int) Tunnel {
	if t.Via == nil {
		return t
	}

	via := t.Via.Over(underlay)
	if via.MTU == 0 {
		via.MTU = via.FitMTU(underlay)
	}

	t.Via = &via
	return t
}

func roundUp(x, n int) int { return (x + n - 1) / n * n }

// families maps prefixes of tunnel names in plans, such as "esp-aes-gcm-256", to encapsulations. The first
// match wins.
var families = []struct {
	name   string
	tunnel Tunnel
}{
	{"wireguard", Tunnel{Kind: WireGuard}},
	{"esp-aes-cbc-sha256", Tunnel{Kind: ESP, Suite: aesCBC(16)}},
	{"esp-cbc-sha1", Tunnel{Kind: ESP, Suite: aesCBC(12)}},
	{"esp-cbc-sha256", Tunnel{Kind: ESP, Suite: aesCBC(16)}},
	{"esp-cbc-sha384", Tunnel{Kind: ESP, Suite: aesCBC(24)}},
	{"esp-cbc-sha512", Tunnel{Kind: ESP, Suite: aesCBC(32)}},
	{"esp", Tunnel{Kind: ESP, Suite: espAEAD}},
	{"openvpn-tcp-cbc-sha1", Tunnel{Kind: OpenVPNTCP, Suite: aesCBC(20)}},
	{"openvpn-tcp-cbc-sha256", Tunnel{Kind: OpenVPNTCP, Suite: aesCBC(32)}},
	{"openvpn-tcp", Tunnel{Kind: OpenVPNTCP}},
	{"openvpn-cbc-sha1", Tunnel{Kind: OpenVPNUDP, Suite: aesCBC(20)}},
	{"openvpn-cbc-sha256", Tunnel{Kind: OpenVPNUDP, Suite: aesCBC(32)}},
	{"openvpn", Tunnel{Kind: OpenVPNUDP}},
	{"vxlan", Tunnel{Kind: VXLAN}},
	{"gre", Tunnel{Kind: GRE}},
	{"ipip", Tunnel{Kind: IPIP}},
}

// Named returns the encapsulation for the name of a tunnel in plans, such as "wireguard-kernel" or "esp".
// ok is false if the name is unknown. OuterIP and MTU are not set.
func Named(kind string) (Tunnel, bool) {
	for _, f := range families {
		if kind == f.name || strings.HasPrefix(kind, f.name+"-") {
			t := f.tunnel
			t.NATT = t.Kind == ESP && strings.HasSuffix(kind, "-natt")
			return t, true
		}
	}
	return Tunnel{}, false
}

// Stacked returns the encapsulation for several tunnel names joined by "+". Each tunnel is carried by the
// next one, as in "wireguard+gre", and all have the same outer IP version. ok is false if a name is unknown.
// It is also false if one of several tunnels runs over TCP, because the segments of that tunnel cannot be
// computed.
func Stacked(names string, outer IP) (t Tunnel, ok bool) {
	list := strings.Split(names, "+")
	for i, name := range slices.Backward(list) {
		next, known := Named(name)
		if !known || len(list) > 1 && next.Kind == OpenVPNTCP {
			return Tunnel{}, false
		}

		if next.OuterIP = outer; i < len(list)-1 {
			next.Via = new(t)
		}

		t = next
	}
	return t, true
}

// Whole returns the parts of a frame on the wire that carries an inner packet of m bytes: the frame's own
// parts, the encapsulation, and the IP and transport headers of the inner packet.
func (p Path) Whole(m int, transport Part) []Part {
	before, after := p.Tunnel.Over(p.Link.mtu()).Around(m)
	parts := []Part{{"preamble", Preamble}, {"Ethernet", Ethernet}}
	n := p.Link.VLANs
	if n > 0 {
		parts = append(parts, Part{fmt.Sprint("VLAN tags: ", n), n * VLANTag})
	}

	if p.Link.PPPoE {
		parts = append(parts, Part{"PPPoE", PPPoE})
	}

	ip := Part{fmt.Sprint("IPv", max(V4, p.Inner)), p.Inner.Header()}
	parts = append(append(parts, before...), ip, transport,
		Part{"payload", max(0, m-ip.Bytes-transport.Bytes)})
	parts = append(parts, after...)
	parts = append(parts, Part{"frame padding", max(0, MinFrame-FCS-sum(parts)+Preamble)}, Part{"FCS", FCS},
		Part{"gap", Gap})
	return slices.DeleteFunc(parts, func(p Part) bool { return p.Bytes == 0 })
}

// BestMTU returns the inner MTU with the largest share of payload on the wire, or 0 if no MTU fits. It
// considers all MTUs from least up to the largest whose packets cross the link unfragmented. headers is
// the length of the inner headers.
func (p Path) BestMTU(least, headers int) (best int) {
	most := 0.0
	fitting := p.Tunnel.FitMTU(p.Link.mtu())
	for m := least; m <= fitting; m++ {
		q := p
		q.Tunnel.MTU = m
		n := q.Bytes(m, LayerWire)
		if n > 0 && float64(m-headers)/float64(n) >= most {
			best, most = m, float64(m-headers)/float64(n)
		}
	}
	return best
}

// TunnelMTU returns the default inner MTU of a kind of tunnel: the largest MTU that fits the outer IP
// version (4 or 6). For WireGuard, it always leaves room for IPv6, as wg-quick(8) does.
func TunnelMTU(kind string, outerIP, linkMTU int) int {
	t, ok := Named(kind)
	if !ok || t.Kind == WireGuard {
		return linkMTU - 80
	}

	t.OuterIP = IP(outerIP)
	return t.FitMTU(linkMTU)
}
