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

// Serve is the node half: the opener probes; the listener has nothing to do, because its kernel answers.
func (ICMP) Serve(ctx context.Context, s host.Session) error {
	var q traffic.Request
	if err := s.Recv(&q); err != nil {
		return err
	}
	if q.Check {
		return s.Send(check.OK())
	}
	if q.Listen {
		return attendICMP(s)
	}
	if err := traffic.PinProcess(q.CPUs); err != nil {
		return err
	}
	traffic.MakeRoom(4)
	return serveICMP(ctx, s, q)
}

// attendICMP keeps the listener's side of the protocol. ICMP has no port; any number says that this end is
// there.
func attendICMP(s host.Session) error {
	if err := s.Send(traffic.Message{Listening: 1}); err != nil {
		return err
	}
	if err := s.Send(traffic.Message{Ready: true}); err != nil {
		return err
	}
	var w record.Window
	if err := s.Recv(&w); err != nil {
		return err
	}
	return traffic.SendResult(s, echoReport{})
}

func serveICMP(ctx context.Context, s host.Session, q traffic.Request) error {
	fd, raw, err := openICMP(q)
	if err != nil {
		return err
	}
	p := newProber(fd, q, icmpFraming(q.Load.IP, raw, traffic.TagHash(q.Load.Tag)))
	defer p.Close()
	p.kernel, p.reply = true, traffic.PhaseProbe // a kernel returns what it got
	_, sa := traffic.Sockaddr(netip.AddrPortFrom(q.Peer, 0))
	if err := unix.Connect(fd, sa); err != nil {
		return fmt.Errorf("connect icmp to %v: %w", q.Peer, err)
	}
	if err := traffic.DontFragment(fd, q.Load.IP); err != nil {
		return fmt.Errorf("forbid fragments on icmp to %v: %w", q.Peer, err)
	}
	if err := p.awaitKernel(ctx); err != nil {
		return fmt.Errorf("ping %v: %w", q.Peer, err)
	}
	return p.serve(ctx, s, q)
}

// openICMP opens a ping socket, which any user may have whose group is in net.ipv4.ping_group_range, or
// else a raw one, which takes CAP_NET_RAW.
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
			return -1, false, &icmpRefused{ping: err, raw: rawErr}
		}
		raw = true
	}
	if err := unix.Bind(fd, sa); err != nil {
		unix.Close(fd)
		return -1, false, fmt.Errorf("bind icmp %v: %w", q.Addr, err)
	}
	return fd, raw, nil
}

// icmpRefused says that neither kind of socket is to be had.
type icmpRefused struct{ ping, raw error }

func (e *icmpRefused) Error() string {
	return fmt.Sprintf("open a socket for ICMP: ping: %v, raw: %v", e.ping, e.raw)
}

// Hint says who may open one.
func (e *icmpRefused) Hint() string {
	return "an ordinary user needs a group in net.ipv4.ping_group_range; or take the plan's " +
		"measure.probe: echo"
}

// icmpFraming puts probes into echo requests. A ping socket fills in the identifier and the checksum; for
// ICMPv6 the kernel always makes the latter.
func icmpFraming(ip int, raw bool, tag uint32) framing {
	f := framing{head: icmpHeader}
	if raw {
		f.room = 60 // the longest IPv4 header, for a packet that is no answer
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

// awaitKernel pings until there is an answer.
func (p *prober) awaitKernel(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, traffic.Patience)
	defer cancel()
	b := make([]byte, p.head+p.payload)
	traffic.Datagram{Tag: p.tag, Phase: traffic.PhaseHello}.Put(b[p.head:])
	for ctx.Err() == nil {
		p.seal(b, 0)
		if _, err := unix.Write(p.Fd, b); err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		for traffic.Readable(p.Fd, traffic.HelloInterval) {
			n, _, err := p.stampedSocket.receive(unix.MSG_DONTWAIT)
			if err != nil {
				break
			}
			payload, ok := p.open(p.buffer[:n])
			if d, isOurs := traffic.ReadDatagram(payload); ok && isOurs && d.Tag == p.tag &&
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
