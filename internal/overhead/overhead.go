// Package overhead computes the cost of headers: the exact lengths of tunnelled packets, fragments and
// Ethernet frames, and the payload rate for a given line rate. It is pure arithmetic and does not depend on
// the machine.
//
// Lengths are in bytes. "L3 length" is the length of an IP packet with its header. docs/method/ceilings.md
// explains the formulas; each function names its sources.
package overhead

// These are header lengths in bytes.
const (
	IPv4Header    = 20 // RFC 791, no options
	IPv6Header    = 40 // RFC 8200, no extension headers
	IPv6Fragment  = 8  // RFC 8200, section 4.5
	UDPHeader     = 8  // RFC 768
	TCPHeader     = 20 // RFC 9293, no options
	TCPTimestamps = 12 // RFC 7323: 10 bytes and two NOPs
	Ethernet      = 14 // two addresses and the EtherType
	FCS           = 4
	Preamble      = 8  // preamble and start-of-frame delimiter
	Gap           = 12 // inter-frame gap
	VLANTag       = 4  // IEEE 802.1Q
	PPPoE         = 8  // RFC 2516: PPPoE header of 6 bytes and PPP protocol field of 2
	MinFrame      = 64 // IEEE 802.3, including the FCS
)

// IP is an IP version: 4 or 6.
type IP int

// These are the IP versions.
const (
	V4 IP = 4
	V6 IP = 6
)

// Header returns the length of the IP header without options.
func (v IP) Header() int {
	if v == V6 {
		return IPv6Header
	}
	return IPv4Header
}

// Headers returns the length of the IP header plus the UDP header, or the TCP header with time stamps.
func (v IP) Headers(udp bool) int {
	if udp {
		return v.Header() + UDPHeader
	}
	return v.Header() + TCPHeader + TCPTimestamps
}

// Link describes an Ethernet link by the headers that it adds to an IP packet.
type Link struct {
	MTU   int  // largest L3 length; 0 means 1500
	VLANs int  // number of VLAN tags
	PPPoE bool // RFC 2516 session
}

func (l Link) mtu() int {
	if l.MTU <= 0 {
		return 1500
	}
	return l.MTU
}

// Wire returns the time for which an IP packet occupies the wire, in byte times. It includes the Ethernet
// header, tags, the FCS, padding to the minimum frame, the preamble and the inter-frame gap.
func (l Link) Wire(l3 int) int {
	n := Ethernet + VLANTag*l.VLANs + l3 + FCS
	if l.PPPoE {
		n += PPPoE
	}
	return max(n, MinFrame) + Preamble + Gap
}

// Frame returns the length that queueing disciplines such as tbf and htb count: skb->len. It includes the 14
// bytes of the Ethernet header, but not the FCS, preamble, gap or padding. It excludes VLAN tags, which Linux
// keeps outside the packet until the driver inserts them (skb->vlan_tci).
func (l Link) Frame(l3 int) int {
	if l.PPPoE {
		l3 += PPPoE
	}
	return Ethernet + l3
}

// Fragments returns the L3 lengths of the packets that an IP packet becomes on a link with the given MTU:
// the length of the packet itself or of its fragments. The payload of every fragment but the last is a
// multiple of 8 bytes (RFC 791 section 3.2, RFC 8200 section 4.5). Fragments returns nil if the MTU leaves
// no room for payload.
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
