package stream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// Sizes and timeouts of the portable UDP sockets.
const (
	portableRoom    = 4 << 20 // size of the socket buffer to request first, in bytes
	minPortableRoom = 64 << 10
	portableLook    = 5 * time.Millisecond  // interval at which a receiver checks whether to end
	portableWait    = 20 * time.Millisecond // timeout of a receive call
)

// portableUDP is one end of a UDP flow through package net, with one call per datagram.
type portableUDP struct {
	udpCount
	conn *net.UDPConn   // the flow's own socket, or the listener's, which all flows of a path share
	to   netip.AddrPort // destination on a shared socket; invalid if conn is connected
}

// connectPortableUDP opens the flows. As on Linux, the listener learns the address of a flow from the
// opener's hello.
func connectPortableUDP(ctx context.Context, l *traffic.Endpoint) error {
	q := l.Request
	flows := make([]*portableUDP, len(l.Keys))
	for i, k := range l.Keys {
		flows[i] = &portableUDP{}
		flows[i].open(q, i, k, len(l.Keys))
		l.Flows[i] = flows[i]
	}

	l.Mode = func() string {
		return "portable: udp, exact mode, a system call for each datagram, its time that of the program"
	}
	var err error
	if q.Listen {
		var h *traffic.HelloServer
		h, err = traffic.AnswerHellos(ctx, l.Part, len(flows),
			func(i int, from netip.AddrPort, at *net.UDPConn) (*net.UDPConn, error) {
				flows[i].conn, flows[i].to = at, from
				return nil, nil
			})
		l.EndSetup = h.Stop
		l.Release = h.Close
	} else {
		err = traffic.SayHello(ctx, q, l.Keys, func(i int, c *net.UDPConn) (func(), error) {
			flows[i].conn = c
			return func() {}, nil
		})
	}

	if err != nil {
		return err
	}

	received := map[*net.UDPConn][]*udpCount{}
	for _, f := range flows {
		f.Addr = f.conn.LocalAddr().String()
		makeRoom(f.conn.SetReadBuffer)
		makeRoom(f.conn.SetWriteBuffer)
		if !f.Sends {
			received[f.conn] = append(received[f.conn], &f.udpCount)
			continue
		}

		s := newUDPSource([]*udpCount{&f.udpCount}, q, len(flows), traffic.MaxBurst)
		b := make([]byte, f.payload)
		f.pattern.Fill(b, 0)
		s.give = func(_, _ int, seq uint64) (int, error) {
			return f.give(f.put(b, s.phase, seq, sendTick(time.Now().UnixNano())))
		}
		l.Workers = append(l.Workers, s)
	}

	for c, of := range received {
		l.Workers = append(l.Workers, &portableSink{newUDPArrivals(of, len(flows)), c})
	}

	return nil
}

// makeRoom requests a socket buffer. The BSDs reject sizes above their limit (kern.ipc.maxsockbuf), so
// makeRoom then tries smaller sizes.
func makeRoom(set func(bytes int) error) {
	for room := portableRoom; room >= minPortableRoom && set(room) != nil; room /= 2 {
	}
}

// Unblock ends a blocked send. Receive calls have a short timeout.
func (f *portableUDP) Unblock(how traffic.Urgency) {
	if how == traffic.AtOnce {
		f.conn.SetWriteDeadline(time.Unix(1, 0))
	}
}

// Close closes the flow's own socket, if it has one.
func (f *portableUDP) Close() {
	if f.conn != nil && !f.to.IsValid() {
		f.conn.Close()
	}
}

// give sends a datagram and returns 1 if the kernel accepted it, otherwise 0. If a queue is full, the BSDs
// return ENOBUFS instead of blocking.
func (f *portableUDP) give(b []byte) (int, error) {
	var err error
	if f.to.IsValid() {
		_, err = f.conn.WriteToUDPAddrPort(b, f.to)
	} else {
		_, err = f.conn.Write(b)
	}

	if err != nil {
		return 0, host.Cause(err)
	}

	return 1, nil
}

// portableSink receives the flows of one socket.
type portableSink struct {
	*udpArrivals
	conn *net.UDPConn
}

// Run receives until the senders have ended their streams, or until the planned end of the load.
func (k *portableSink) Run(p *traffic.Phases) error {
	b := make([]byte, 1<<16)
	var look int64
	for !p.Abandoned.Load() {
		now := traffic.Monotonic()
		if now >= look {
			if now >= p.Stop || k.complete(now) {
				return nil
			}

			k.conn.SetReadDeadline(time.Now().Add(portableWait))
			look = now + int64(portableLook)
		}

		n, _, err := k.conn.ReadFromUDPAddrPort(b)
		switch {
		case err == nil:
			d, ok := traffic.ReadDatagram(b[:n])
			f := k.flowOf(d, ok)
			if f != nil {
				f.take(b, n, d, traffic.Monotonic(), 0)
				f.tell()
			}
		case traffic.TimedOut(err):
			look = 0
		case !errors.Is(err, syscall.ECONNREFUSED):
			return fmt.Errorf("receive: %w", host.Cause(err))
		}
	}

	return nil
}
