// Package overhead computes the cost of headers: the exact length of packets inside tunnels, fragments and
// Ethernet frames, and the payload rate that remains of a line rate. It is pure arithmetic, and does not
// depend on the machine.
//
// Lengths are bytes. "L3 length" is the length of an IP packet with its header. The formulas are those of
// docs/method/ceilings.md; each function names its sources.
package overhead

// Header lengths in bytes.
const (
	IPv4Header    = 20 // RFC 791, no options
	IPv6Header    = 40 // RFC 8200, no extension headers
	IPv6Fragment  = 8  // RFC 8200 §4.5
	UDPHeader     = 8  // RFC 768
	TCPHeader     = 20 // RFC 9293, no options
	TCPTimestamps = 12 // RFC 7323: 10 bytes and 2 NOP
	Ethernet      = 14 // two addresses and the type
	FCS           = 4
	Preamble      = 8  // preamble and start-of-frame delimiter
	Gap           = 12 // inter-frame gap
	VLANTag       = 4  // IEEE 802.1Q
	PPPoE         = 8  // RFC 2516: 6, and 2 of PPP
	MinFrame      = 64 // IEEE 802.3, FCS included
)

// IP is a version of the Internet Protocol: 4 or 6.
type IP int

// The versions.
const (
	V4 IP = 4
	V6 IP = 6
)

// Header returns the length of the version's header without options.
func (v IP) Header() int {
	if v == V6 {
		return IPv6Header
	}
	return IPv4Header
}

// Headers returns the length of the version's header plus that of UDP, or of TCP with time stamps.
func (v IP) Headers(udp bool) int {
	if udp {
		return v.Header() + UDPHeader
	}
	return v.Header() + TCPHeader + TCPTimestamps
}

// Link describes what an Ethernet link adds to an IP packet.
type Link struct {
	MTU   int  // largest L3 length; 0 = 1500
	VLANs int  // tags
	PPPoE bool // RFC 2516 session
}

func (l Link) mtu() int {
	if l.MTU <= 0 {
		return 1500
	}
	return l.MTU
}

// Wire returns the time on the wire, in byte times, of one IP packet: header, tags, FCS, padding to the
// smallest frame, preamble and gap.
func (l Link) Wire(l3 int) int {
	n := Ethernet + VLANTag*l.VLANs + l3 + FCS
	if l.PPPoE {
		n += PPPoE
	}
	return max(n, MinFrame) + Preamble + Gap
}

// Frame returns the length that a queueing discipline such as tbf or htb counts: skb->len, which includes the
// 14 bytes of Ethernet header but neither FCS, preamble, gap nor padding. It excludes a VLAN tag, because
// Linux keeps the tag beside the packet until the driver inserts it (skb->vlan_tci).
func (l Link) Frame(l3 int) int {
	if l.PPPoE {
		l3 += PPPoE
	}
	return Ethernet + l3
}

// Fragments returns the L3 lengths of the packets that an IP packet becomes on a link with the given MTU:
// itself, or fragments; all but the last carry a multiple of 8 bytes (RFC 791 §3.2, RFC 8200 §4.5).
func Fragments(v IP, l3, mtu int) []int {
	header := v.Header()
	if l3 <= mtu {
		return []int{l3}
	}

	each := header
	if v == V6 {
		each += IPv6Fragment
	}

	room := (mtu - each) &^ 7
	if room <= 0 {
		return nil
	}

	var out []int
	for left := l3 - header; left > 0; left -= room {
		out = append(out, each+min(left, room))
	}

	return out
}
