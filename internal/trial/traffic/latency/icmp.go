package latency

import (
	"context"

	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// ICMP measures latency by ICMP echo requests, which the far kernel answers: nothing of this program runs
// between a probe and its answer there. Its node half needs Linux.
type ICMP struct{ traffic.Pair }

// Name is "icmp".
func (ICMP) Name() string { return "icmp" }

// Probe runs the probe to the end of the timeline.
func (i ICMP) Probe(ctx context.Context, near, far traffic.End, load record.Load,
	c traffic.Conductor) (*record.Latency, error) {
	return runProbe(ctx, i.Name(), near, far, load, c)
}

// Types of ICMP (RFC 792) and ICMPv6 (RFC 4443) messages.
const (
	icmpEchoRequest   = 8
	icmpEchoReply     = 0
	icmpv6EchoRequest = 128
	icmpv6EchoReply   = 129
	icmpHeader        = 8
)

// checksum is the Internet checksum of RFC 1071.
func checksum(b []byte) uint16 {
	sum := uint32(0)
	for ; len(b) >= 2; b = b[2:] {
		sum += uint32(b[0])<<8 | uint32(b[1])
	}
	if len(b) == 1 {
		sum += uint32(b[0]) << 8
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

// icmpPayload is what an echo reply to us carries. Of a raw IPv4 socket the message stands behind its IP
// header.
func icmpPayload(b []byte, ip int, raw bool) (payload []byte, ok bool) {
	if raw && ip == 4 {
		if len(b) < traffic.Ipv4Header {
			return nil, false
		}
		header := int(b[0]&0xf) * 4
		if header < traffic.Ipv4Header || header > len(b) {
			return nil, false
		}
		b = b[header:]
	}
	want := byte(icmpEchoReply)
	if ip == 6 {
		want = icmpv6EchoReply
	}
	if len(b) < icmpHeader || b[0] != want || b[1] != 0 {
		return nil, false
	}
	return b[icmpHeader:], true
}
