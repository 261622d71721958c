package latency

import (
	"context"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// Serve is the node side of the probe.
func (Echo) Serve(ctx context.Context, s host.Session) error {
	return serveEcho(ctx, s, openStamped, connectEcho)
}

// stampedEcho implements echoSocket with the kernel's time stamps of arrivals, on its own thread.
type stampedEcho struct {
	*stampedSocket
	listener *net.UDPConn
	prober   netip.AddrPort
}

func openStamped(at *net.UDPConn, prober netip.AddrPort, size int) (echoSocket, error) {
	fd, err := traffic.TakeOver(at)
	if err != nil {
		return nil, err
	}

	unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1)
	return &stampedEcho{newStampedSocket(fd, size), at, prober}, nil
}

// settle takes the socket over for this thread. It connects the socket, so that the kernel drops datagrams
// from other senders. If connecting fails, receive checks the source.
func (e *stampedEcho) settle() (tid int, scheduling string) {
	e.listener.Close()
	unix.SetNonblock(e.FD, false)
	_, sa := traffic.Sockaddr(e.prober)
	unix.Connect(e.FD, sa)
	return traffic.OwnThread(), traffic.Raise()
}

func (e *stampedEcho) receive() (b []byte, arrived int64) {
	n, control, err := e.stampedSocket.receive(0)
	if err != nil || e.source() != e.prober { // timeout, signal, ICMP error, or another source
		return nil, 0
	}
	return e.buffer[:n], readStamps(control).at
}
