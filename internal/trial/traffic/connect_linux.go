package traffic

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// tune returns a function that sets options of a socket before it connects.
func tune(q Request, congestion string) func(network, address string, c syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) error {
		held := q.Load.Limits(q.Side)
		return control(c, func(fd int) error {
			return errors.Join(TuneTCP(fd, q.Load, congestion),
				sizeBuffers(fd, held.SendBuffer, held.ReceiveBuffer))
		})
	}
}

// TuneTCP sets the TCP options of a load on a socket.
func TuneTCP(fd int, load record.Load, congestion string) error {
	if congestion != "" {
		if err := unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, congestion); err != nil {
			return fmt.Errorf("set congestion control %s: %w", congestion, err)
		}
	}

	if load.MSS > 0 {
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_MAXSEG, load.MSS); err != nil {
			return fmt.Errorf("set segment size %d: %w", load.MSS, err)
		}
	}

	if err := sizeBuffers(fd, load.Buffer, load.Buffer); err != nil {
		return err
	}

	return MarkDSCP(fd, load)
}

// sizeBuffers sets the socket's buffer sizes in bytes; 0 leaves a buffer to the kernel. The kernel doubles
// the requested size for its own use.
func sizeBuffers(fd, send, receive int) error {
	for _, b := range []struct{ force, option, size int }{
		{unix.SO_SNDBUFFORCE, unix.SO_SNDBUF, send}, {unix.SO_RCVBUFFORCE, unix.SO_RCVBUF, receive}} {
		if b.size == 0 {
			continue
		}

		got := bigBuffer(&Socket{FD: fd}, b.force, b.option, b.size/2)
		if got < b.size/2*2 {
			return fmt.Errorf("set socket buffers of %d bytes: the kernel gives %d at most", b.size, got)
		}
	}
	return nil
}

// ConnectFlows opens one TCP connection per flow, regardless of the direction of the flow, and returns the
// file descriptors of the connections as blocking sockets. port is the port of the listener.
func ConnectFlows(ctx context.Context, q Part, keys []FlowKey) (fds []int, port int, err error) {
	conns, port, err := MakeConnections(ctx, q, keys)
	for _, c := range conns {
		fd, failed := TakeOver(c)
		if failed == nil {
			fds = append(fds, fd)
			failed = unix.SetNonblock(fd, false)
		}

		c.Close() // closed, because the flow has its own descriptor
		err = cmp.Or(err, failed)
	}

	if err != nil {
		for _, fd := range fds {
			unix.Close(fd)
		}
	}

	return fds, port, err
}

// TakeOver duplicates the file descriptor of a connection. The duplicate is not registered with Go's poller,
// because threads that measure block in the kernel.
func TakeOver(c syscall.Conn) (fd int, err error) {
	err = Control(c, func(old int) (err error) {
		fd, err = unix.FcntlInt(uintptr(old), unix.F_DUPFD_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return -1, fmt.Errorf("take over a socket: %w", err)
	}

	return fd, nil
}
