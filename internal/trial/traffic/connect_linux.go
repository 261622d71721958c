package traffic

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// PreambleTimeout is how long a stranger may hold a connection open without a valid preamble.
const PreambleTimeout = 3 * time.Second

// Tune sets what must be set before the connection is made.
func Tune(load record.Load, congestion string) func(network, address string, c syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) error {
		var err error
		outer := c.Control(func(fd uintptr) { err = TuneTCP(int(fd), load, congestion) })
		return errors.Join(outer, err)
	}
}

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
	if load.Buffer > 0 {
		s := &Socket{Fd: fd}
		// The kernel doubles what is asked for, to have room for its own use.
		bigBuffer(s, unix.SO_SNDBUFFORCE, unix.SO_SNDBUF, load.Buffer/2)
		if got := bigBuffer(s, unix.SO_RCVBUFFORCE, unix.SO_RCVBUF, load.Buffer/2); got < load.Buffer/2*2 {
			return fmt.Errorf("set socket buffers of %d bytes: the kernel gives %d at most", load.Buffer, got)
		}
	}
	return MarkDSCP(fd, load)
}

func DialFlows(ctx context.Context, q Request, keys []FlowKey) ([]*net.TCPConn, error) {
	conns := make([]*net.TCPConn, len(keys))
	for i, k := range keys {
		way := q.PathOf(k)
		d := net.Dialer{
			LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(way.Addr, 0)),
			Control:   Tune(q.Load, CongestionOf(q.Load, k)), KeepAlive: -1,
		}
		d.SetMultipathTCP(false)
		target := netip.AddrPortFrom(way.Peer, uint16(q.Port)).String()
		c, err := d.DialContext(ctx, "tcp", target)
		if err != nil {
			return conns, fmt.Errorf("connect to %s: %w", target, Cause(err))
		}
		conns[i] = c.(*net.TCPConn)
		if err := sendPreamble(ctx, c, q.Load.Tag, i); err != nil {
			return conns, fmt.Errorf("introduce stream to %s: %w", target, err)
		}
	}
	return conns, nil
}

// Cause drops the wordy wrapping of net's errors, which repeats addresses.
func Cause(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	return err
}

func sendPreamble(ctx context.Context, c net.Conn, tag string, flow int) error {
	if t, ok := ctx.Deadline(); ok {
		c.SetDeadline(t)
	}
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	if _, err := c.Write(Preamble(tag, flow)); err != nil {
		return Cause(err)
	}
	b := make([]byte, WelcomeSize)
	if _, err := io.ReadFull(c, b); err != nil {
		return Cause(err)
	}
	if string(b) != string(Welcome(tag)) {
		return errors.New("somebody else is listening there")
	}
	return c.SetDeadline(time.Time{})
}

// AcceptFlows listens until each flow has introduced itself. Strangers are dropped and never hold up the
// others.
func AcceptFlows(ctx context.Context, q Request, n int, listening func(port int) error) ([]*net.TCPConn,
	error) {
	doors, port, err := ListenTCP(ctx, q)
	if err == nil {
		err = listening(port)
	}
	if err != nil {
		CloseListeners(doors)
		return nil, err
	}
	h := acceptor{tag: q.Load.Tag, pending: PendingConns{Most: n + MaxPending},
		conns:   make([]*net.TCPConn, n),
		missing: n, full: make(chan struct{})}
	var guests sync.WaitGroup
	for _, ln := range doors {
		guests.Go(func() { h.accept(ln, &guests) })
	}
	select {
	case <-h.full:
		err = nil
	case <-ctx.Done():
		err = fmt.Errorf("wait for %d connections on %v port %d: %w", n, q.Addr, port, ctx.Err())
	}
	CloseListeners(doors)
	h.end()
	guests.Wait()
	return h.conns, err
}

// ListenTCP listens on each way, everywhere on the same port.
func ListenTCP(ctx context.Context, q Request) (doors []net.Listener, port int, err error) {
	lc := net.ListenConfig{Control: Tune(q.Load, CongestionOf(q.Load, FlowKey{Stream: 1})), KeepAlive: -1}
	lc.SetMultipathTCP(false)
	port = q.Port
	for _, way := range q.Paths() {
		at := netip.AddrPortFrom(way.Addr, uint16(port))
		ln, err := lc.Listen(ctx, "tcp", at.String())
		if err != nil {
			return doors, port, fmt.Errorf("listen on %v: %w", at, Cause(err))
		}
		doors, port = append(doors, ln), ln.Addr().(*net.TCPAddr).Port
	}
	return doors, port, nil
}

func CloseListeners(doors []net.Listener) {
	for _, ln := range doors {
		ln.Close()
	}
}

// MaxPending is how many connections may wait that are not the load's.
const MaxPending = 64

// acceptor is where connections wait until they are recognised.
type acceptor struct {
	tag  string
	full chan struct{} // closed when nobody is missing

	mu      sync.Mutex
	pending PendingConns // not yet recognised
	conns   []*net.TCPConn
	missing int
	closed  bool
}

func (h *acceptor) accept(ln net.Listener, guests *sync.WaitGroup) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		h.mu.Lock()
		over := h.closed
		if !over {
			h.pending.Add(c)
		}
		h.mu.Unlock()
		if over {
			c.Close()
			return
		}
		guests.Go(func() { h.identify(c.(*net.TCPConn)) })
	}
}

func (h *acceptor) identify(c *net.TCPConn) {
	c.SetDeadline(time.Now().Add(PreambleTimeout))
	b := make([]byte, PreambleSize)
	_, err := io.ReadFull(c, b)
	i, known := ReadPreamble(b, h.tag, len(h.conns))
	if err != nil || !known || !h.admit(i, c) {
		c.Close()
	}
	h.mu.Lock()
	h.pending.Remove(c)
	h.mu.Unlock()
}

func (h *acceptor) admit(i int, c *net.TCPConn) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || h.conns[i] != nil {
		return false
	}
	if _, err := c.Write(Welcome(h.tag)); err != nil {
		return false
	}
	c.SetDeadline(time.Time{})
	h.pending.Remove(c)
	h.conns[i] = c
	if h.missing--; h.missing == 0 {
		close(h.full)
	}
	return true
}

// end sends the strangers away.
func (h *acceptor) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for _, c := range h.pending.conns {
		c.Close()
	}
}
