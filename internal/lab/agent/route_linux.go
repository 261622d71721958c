package agent

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// routeProbe is a UDP socket that queues ICMP errors (ip(7), IP_RECVERR). It requires no privileges.
type routeProbe struct {
	fd int
	v6 bool
}

func openRouteProbe(r FindRoute) (*routeProbe, error) {
	p := &routeProbe{v6: r.To.Is6()}
	domain := unix.AF_INET
	level := unix.IPPROTO_IP
	keep := unix.IP_RECVERR
	if p.v6 {
		domain = unix.AF_INET6
		level = unix.IPPROTO_IPV6
		keep = unix.IPV6_RECVERR
	}

	var err error
	if p.fd, err = unix.Socket(domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0); err != nil {
		return nil, err
	}

	err = unix.SetsockoptInt(p.fd, level, keep, 1)
	if err == nil && r.From.IsValid() {
		err = unix.Bind(p.fd, socketAddress(netip.AddrPortFrom(r.From, 0)))
	}

	if err == nil {
		err = unix.Connect(p.fd, socketAddress(netip.AddrPortFrom(r.To, uint16(r.Port))))
	}

	if err != nil {
		unix.Close(p.fd)
		return nil, err
	}

	return p, nil
}

func socketAddress(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is6() {
		return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
	}
	return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
}

func findRoute(ctx context.Context, r FindRoute) (found FoundRoute, err error) {
	p, err := openRouteProbe(r)
	if err != nil {
		return found, err
	}
	defer unix.Close(p.fd)
	found.Routers = []netip.Addr{}
	silent := 0
	for ttl := 1; ttl <= maxRouters && ctx.Err() == nil; ttl++ {
		by, reached, err := p.try(ctx, r, ttl)
		if err != nil {
			return found, err
		}

		if reached {
			found.Reached = true
			return found, nil
		}

		if silent++; by.IsValid() {
			silent = 0
		}

		found.Routers = append(found.Routers, by)
		if silent > 8 { // the rest of the path does not answer
			break
		}
	}

	for n := len(found.Routers); n > 0 && !found.Routers[n-1].IsValid(); n-- {
		found.Routers = found.Routers[:n-1]
	}

	return found, ctx.Err()
}

// try sends datagrams with the given TTL. by is the router that reported that the TTL had expired. reached
// reports whether the echo returned a datagram.
func (p *routeProbe) try(ctx context.Context, r FindRoute, ttl int) (by netip.Addr, reached bool, err error) {
	level := unix.IPPROTO_IP
	name := unix.IP_TTL
	if p.v6 {
		level = unix.IPPROTO_IPV6
		name = unix.IPV6_UNICAST_HOPS
	}

	if err := unix.SetsockoptInt(p.fd, level, name, ttl); err != nil {
		return by, false, fmt.Errorf("set the time to live: %w", err)
	}

	// The TTL also serves as the attempt's number, by which late datagrams are recognized. The echo answers
	// with the cookie.
	datagram := tagged(ttl, r.Tag, 0)
	for range routeTries {
		unix.Write(p.fd, datagram) // ignore the error: it may be the ICMP error for an earlier datagram
		until := time.Now().Add(2 * wait)
		for time.Now().Before(until) && ctx.Err() == nil {
			ready := []unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN}}
			if n, err := unix.Poll(ready, int(wait.Milliseconds())/4); err != nil || n == 0 {
				continue
			}

			if by, ended := p.ended(); ended {
				return by, false, nil
			}

			b := make([]byte, 64)
			n, _, err := unix.Recvfrom(p.fd, b, unix.MSG_DONTWAIT)
			if err == nil && n == len(datagram) && b[0] == byte(ttl) && marked(b[:n], r.Tag) {
				return by, true, nil
			}
		}
	}

	return by, false, nil
}

// ended reads an ICMP error from the socket, and returns its sender if the error is "time exceeded". The
// error is a sock_extended_err followed by the sender's address (linux/errqueue.h).
func (p *routeProbe) ended() (by netip.Addr, ok bool) {
	b := make([]byte, 256)
	control := make([]byte, 512)
	_, n, _, _, err := unix.Recvmsg(p.fd, b, control, unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
	if err != nil {
		return by, false
	}

	messages, err := unix.ParseSocketControlMessage(control[:n])
	if err != nil {
		return by, false
	}

	for _, m := range messages {
		if by, ok := timeExceeded(m.Data); ok {
			return by, true
		}
	}

	return by, false
}

// timeExceeded parses a sock_extended_err and the address after it.
func timeExceeded(b []byte) (by netip.Addr, ok bool) {
	const head = 16
	if len(b) < head+8 {
		return by, false
	}

	origin := b[4]
	kind := b[5]
	family := binary.NativeEndian.Uint16(b[head:])
	switch {
	case origin == unix.SO_EE_ORIGIN_ICMP && kind == 11 && family == unix.AF_INET: // defined in RFC 792
		return netip.AddrFrom4([4]byte(b[head+4 : head+8])), true
	case origin == unix.SO_EE_ORIGIN_ICMP6 && kind == 3 && family == unix.AF_INET6 && len(b) >= head+24:
		// defined in RFC 4443
		return netip.AddrFrom16([16]byte(b[head+8 : head+24])).Unmap(), true
	}

	return by, false
}
