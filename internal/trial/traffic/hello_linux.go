package traffic

import (
	"context"
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// OpenFlows sends hellos for each flow and passes the file descriptor of the flow's socket to admit. The
// socket is blocking when the exchange of hellos has ended.
func OpenFlows(ctx context.Context, q Request, keys []FlowKey,
	admit func(flow, fd int, at, to netip.AddrPort) error) error {
	return SayHello(ctx, q, keys, func(flow int, c *net.UDPConn) (func(), error) {
		fd, err := TakeOver(c)
		if err == nil {
			err = admit(flow, fd, c.LocalAddr().(*net.UDPAddr).AddrPort(),
				c.RemoteAddr().(*net.UDPAddr).AddrPort())
		}
		return func() {
			c.Close()
			if err == nil {
				unix.SetNonblock(fd, false)
			}
		}, err
	})
}

// OwnSocket opens a socket for one opener at a listener's address and port, and duplicates the socket's
// file descriptor. The kernel prefers the socket that is connected to the sender of a packet.
func OwnSocket(ctx context.Context, listener *net.UDPConn, from netip.AddrPort) (c *net.UDPConn, fd int,
	err error) {
	if err := Control(listener, sharePort); err != nil {
		return nil, -1, err
	}

	c, err = listenUDP(ctx, listener.LocalAddr().(*net.UDPAddr).AddrPort())
	if err != nil {
		return nil, -1, err
	}

	fd, err = TakeOver(c)
	if err == nil {
		_, sa := Sockaddr(from)
		if err = unix.Connect(fd, sa); err == nil {
			return c, fd, nil
		}

		unix.Close(fd)
		err = fmt.Errorf("connect to %v: %w", from, err)
	}

	c.Close()
	return nil, -1, err
}

// sharePort allows other sockets to bind the same port.
func sharePort(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) }

// SharedSockets maps listeners to the sockets that several flows share.
type SharedSockets map[*net.UDPConn]*Socket

// Of returns the socket of a listener. The first call for a listener duplicates its file descriptor.
func (m SharedSockets) Of(listener *net.UDPConn) (*Socket, error) {
	s := m[listener]
	if s != nil {
		return s, nil
	}

	fd, err := TakeOver(listener)
	if err != nil {
		return nil, err
	}

	m[listener] = &Socket{FD: fd}
	return m[listener], nil
}
