package traffic

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// HelloInterval is how often an opener of UDP flows repeats its hello until it is welcomed.
const (
	HelloInterval = 20 * time.Millisecond
	maxRefusals   = 20 // then nobody is listening there
)

// SayHelloBy says hello for a flow by a socket that is connected to the listener, until it is welcomed,
// within Patience.
func SayHelloBy(ctx context.Context, c *net.UDPConn, q Request, flow int) error {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	tag, cookie, refusals := helloHash(q.Load), uint64(0), 0
	for b := make([]byte, 64); ctx.Err() == nil && refusals < maxRefusals; {
		Datagram{Tag: tag, Flow: uint16(flow), Phase: PhaseHello}.WithCookie(cookie).Put(b)
		_, err := c.Write(b[:DatagramHeader])
		for until := time.Now().Add(HelloInterval); err == nil; {
			c.SetReadDeadline(until)
			var n int
			n, err = c.Read(b)
			d, ok := ReadDatagram(b[:n])
			if !ok || d.Tag != tag || int(d.Flow) != flow {
				continue
			}
			if d.Phase == PhaseWelcome {
				return c.SetReadDeadline(time.Time{})
			}
			if d.Phase == PhaseChallenge && d.Cookie() != cookie {
				cookie = d.Cookie()
				break
			}
		}
		switch timeout, ok := errors.AsType[net.Error](err); {
		case err == nil, ok && timeout.Timeout():
			continue
		case errors.Is(err, syscall.ECONNREFUSED):
			refusals++
		case !errors.Is(err, syscall.ENOBUFS):
			return fmt.Errorf("say hello to %v: %w", c.RemoteAddr(), host.Cause(err))
		}
		host.Pause(ctx, HelloInterval)
	}
	if refusals == maxRefusals {
		return fmt.Errorf("say hello to %v: %w", c.RemoteAddr(), syscall.ECONNREFUSED)
	}
	return fmt.Errorf("say hello to %v: no answer within %v", c.RemoteAddr(), Patience)
}

// Hellos judges what says hello to a listener. Nobody is sent anything but a cookie, which is as long as
// what asked for it, who has not returned that.
type Hellos struct {
	request Request
	cookies *host.Cookies
	tag     uint32
	flows   int
}

// NewHellos are those of a load with so many flows.
func NewHellos(q Request, flows int) *Hellos {
	return &Hellos{request: q, cookies: host.NewCookies(), tag: helloHash(q.Load), flows: flows}
}

// Judge says which flow a datagram says hello for, -1 if that is not known, and writes into b what is to be
// answered, if anything is.
func (g *Hellos) Judge(b []byte, from netip.AddrPort) (flow int, answer []byte) {
	d, ok := ReadDatagram(b)
	if !ok || d.Tag != g.tag || d.Phase != PhaseHello || int(d.Flow) >= g.flows ||
		!g.request.Hears(from.Addr()) {
		return -1, nil // a stray
	}
	if cookie := g.cookies.Of(from); d.Cookie() != cookie {
		Datagram{Tag: d.Tag, Flow: d.Flow, Phase: PhaseChallenge}.WithCookie(cookie).Put(b)
		return -1, b[:DatagramHeader]
	}
	Datagram{Tag: d.Tag, Flow: d.Flow, Phase: PhaseWelcome}.Put(b)
	return int(d.Flow), b[:DatagramHeader]
}

// ListenUDP opens a socket for datagrams that are not fragmented, on an address of a path.
func ListenUDP(ctx context.Context, at netip.AddrPort) (*net.UDPConn, error) {
	lc := net.ListenConfig{Control: unfragmented}
	c, err := lc.ListenPacket(ctx, udpNetwork(at.Addr()), at.String())
	if err != nil {
		return nil, fmt.Errorf("bind udp %v: %w", at, host.Cause(err))
	}
	return c.(*net.UDPConn), nil
}

// DialUDP opens a socket for the datagrams of a path, which are not fragmented, to a port of its other end.
func DialUDP(ctx context.Context, path Path, port int) (*net.UDPConn, error) {
	to := netip.AddrPortFrom(path.Peer, uint16(port)).String()
	d := net.Dialer{LocalAddr: net.UDPAddrFromAddrPort(netip.AddrPortFrom(path.Addr, 0)),
		Control: unfragmented}
	c, err := d.DialContext(ctx, udpNetwork(path.Addr), to)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", to, host.Cause(err))
	}
	return c.(*net.UDPConn), nil
}

// udpNetwork is the socket's version of IP.
func udpNetwork(a netip.Addr) string {
	if a.Unmap().Is4() {
		return "udp4"
	}
	return "udp6"
}

// unfragmented makes a packet that does not fit an error instead of fragments: the packet size is what is
// being measured.
func unfragmented(network, _ string, c syscall.RawConn) (err error) {
	ip := 4
	if network == "udp6" {
		ip = 6
	}
	outer := c.Control(func(fd uintptr) { err = DontFragment(int(fd), ip) })
	if err = errors.Join(outer, err); err != nil {
		return fmt.Errorf("forbid fragments: %w", err)
	}
	return nil
}
