package latency

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// ICMP measures latency with ICMP echo requests, which the far end's kernel answers without any process.
// The node side requires Linux.
type ICMP struct{}

// Name returns "icmp".
func (ICMP) Name() string { return "icmp" }

// Probe runs the probe until the end of the timeline.
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

// checksum returns the Internet checksum (RFC 1071).
func checksum(b []byte) uint16 {
	var sum uint32
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

// icmpPayload returns the payload of an echo reply. On a raw IPv4 socket, b begins with the IP header.
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

// Serve is the node side of the probe. The opener sends the probes. The listener has nothing to do,
// because its kernel answers.
func (ICMP) Serve(ctx context.Context, s host.Session) error {
	return traffic.Serve(ctx, s, canProbe, connectICMP)
}

// kernelEcho is the listener's activity. It does nothing, because the kernel answers.
type kernelEcho struct{}

// Run returns an empty report.
func (kernelEcho) Run(context.Context, record.Window, func(traffic.Progress) error) ([]any, error) {
	return []any{echoReport{}}, nil
}

// Close does nothing.
func (kernelEcho) Close() {}

func connectICMP(ctx context.Context, q traffic.Part) (traffic.Running, error) {
	if q.Listen {
		return kernelEcho{}, q.Listening(1) // any number will do, because ICMP has no ports
	}

	if err := complete(&q.Load); err != nil {
		return nil, err
	}

	traffic.MakeRoom(4)
	fd, raw, err := openICMP(q.Request)
	if err != nil {
		return nil, err
	}

	around := icmpFraming(q.Load.IP, raw, traffic.TagHash(traffic.TagProbe, q.Load.Tag))
	p := newStampedProber(fd, q.Request, around)
	p.kernel = true
	p.back = traffic.PhaseProbe // because the kernel echoes the message unchanged
	if err = traffic.Connect(fd, netip.AddrPortFrom(q.Peer, 0), q.Load.IP); err == nil {
		err = p.awaitKernel(ctx)
	}

	if err != nil {
		p.Close()
		return nil, fmt.Errorf("ping %v: %w", q.Peer, err)
	}

	return p.ready(), nil
}

// openICMP opens a ping socket, which is available to users in a group in net.ipv4.ping_group_range. If
// that fails, openICMP opens a raw socket, which requires CAP_NET_RAW.
func openICMP(q traffic.Request) (fd int, raw bool, err error) {
	domain, sa := traffic.Sockaddr(netip.AddrPortFrom(q.Addr, 0))
	protocol := unix.IPPROTO_ICMP
	if q.Load.IP == 6 {
		protocol = unix.IPPROTO_ICMPV6
	}

	fd, err = unix.Socket(domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		var rawErr error
		fd, rawErr = unix.Socket(domain, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
		if rawErr != nil {
			return -1, false, check.WithHint(fmt.Errorf("open a socket for ICMP: ping: %v, raw: %v", err,
				rawErr), "an ordinary user needs a group in net.ipv4.ping_group_range; or take the plan's "+
				"measure.probe: echo")
		}

		raw = true
	}

	if err := unix.Bind(fd, sa); err != nil {
		unix.Close(fd)
		return -1, false, fmt.Errorf("bind icmp %v: %w", q.Addr, err)
	}

	return fd, raw, nil
}

// icmpFraming returns the framing of probes as echo requests. On a ping socket, the kernel sets identifier
// and checksum. For ICMPv6, the kernel always computes the checksum.
func icmpFraming(ip int, raw bool, tag uint32) framing {
	f := framing{head: icmpHeader}
	if raw {
		f.room = 60 // length of the longest IPv4 header
	}

	f.seal = func(b []byte, seq uint64) {
		clear(b[:icmpHeader])
		b[0] = icmpEchoRequest
		if ip == 6 {
			b[0] = icmpv6EchoRequest
		}

		binary.BigEndian.PutUint16(b[4:], uint16(tag))
		binary.BigEndian.PutUint16(b[6:], uint16(seq))
		if raw && ip == 4 {
			binary.BigEndian.PutUint16(b[2:], checksum(b))
		}
	}
	f.open = func(b []byte) ([]byte, bool) { return icmpPayload(b, ip, raw) }
	return f
}

// awaitKernel sends echo requests until there is an answer.
func (p *stampedProber) awaitKernel(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, traffic.Patience)
	defer cancel()
	b := make([]byte, p.head+p.payload)
	traffic.Datagram{Tag: p.tag, Phase: traffic.PhaseHello}.Put(b[p.head:])
	for ctx.Err() == nil {
		p.seal(b, 0)
		if _, err := unix.Write(p.FD, b); err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}

		for {
			n, _, err := p.stampedSocket.receive(0) // waits for at most receiveTimeout
			if err != nil {
				break
			}

			payload, ok := p.open(p.buffer[:n])
			d, isOurs := traffic.ReadDatagram(payload)
			if ok && isOurs && d.Tag == p.tag &&
				d.Phase == traffic.PhaseHello {
				return nil
			}
		}
	}

	if err := ctx.Err(); !errors.Is(err, context.DeadlineExceeded) {
		return err
	}

	return fmt.Errorf("no answer within %v", traffic.Patience)
}
