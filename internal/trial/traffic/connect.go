package traffic

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// PreambleTimeout limits the time for which a client may keep a connection open without a valid preamble.
const PreambleTimeout = 3 * time.Second

// MakeConnections opens one TCP connection per flow within Patience, regardless of the direction of the
// flow. port is the port of the listener. If MakeConnections returns an error, it leaves no connection
// open.
func MakeConnections(ctx context.Context, q Part, keys []FlowKey) (conns []*net.TCPConn, port int,
	err error) {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	conns = make([]*net.TCPConn, len(keys))
	if q.Listen {
		port, err = acceptFlows(ctx, q, conns)
	} else {
		port, err = q.Port, dialFlows(ctx, q.Request, keys, conns)
	}

	if err == nil {
		return conns, port, nil
	}

	for _, c := range conns {
		if c != nil {
			c.Close()
		}
	}

	return nil, port, err
}

func dialFlows(ctx context.Context, q Request, keys []FlowKey, conns []*net.TCPConn) error {
	for i, k := range keys {
		c, err := q.Dial(ctx, k)
		if err != nil {
			return err
		}

		conns[i] = c.(*net.TCPConn)
		if err = Identify(ctx, c, q.Load.Tag, i); err == nil {
			err = c.SetDeadline(time.Time{})
		}

		if err != nil {
			return fmt.Errorf("identify stream %d to %v: %w", i+1, c.RemoteAddr(), err)
		}
	}
	return nil
}

// Dial opens a connection on the path of a flow.
func (q Request) Dial(ctx context.Context, k FlowKey) (net.Conn, error) {
	path := q.PathOf(k)
	d := net.Dialer{
		LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(path.Addr, 0)),
		Control:   tune(q, CongestionOf(q.Load, k)),
		KeepAlive: -1,
	}
	d.SetMultipathTCP(false)
	target := netip.AddrPortFrom(path.Peer, uint16(q.Port)).String()
	c, err := d.DialContext(ctx, "tcp", target)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", target, host.Cause(err))
	}

	return c, nil
}

// Identify sends a flow's preamble to a listener and waits for its welcome. If ctx ends, it sets a deadline
// in the past.
func Identify(ctx context.Context, c net.Conn, tag string, flow int) error {
	defer context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })()
	if _, err := c.Write(Preamble(tag, flow)); err != nil {
		return host.Cause(err)
	}

	b := make([]byte, WelcomeSize)
	if _, err := io.ReadFull(c, b); err != nil {
		return host.Cause(err)
	}

	if string(b) != string(Welcome(tag)) {
		return errors.New("another program is listening there")
	}

	return nil
}

// acceptFlows listens until each flow has sent its preamble. Other connections are closed and cannot delay
// the load.
func acceptFlows(ctx context.Context, q Part, conns []*net.TCPConn) (port int, err error) {
	listeners, port, err := ListenTCP(ctx, q.Request)
	if err == nil {
		err = q.Listening(port)
	}

	if err != nil {
		CloseListeners(listeners)
		return port, err
	}

	var mu sync.Mutex
	missing := len(conns)
	full := make(chan struct{})
	a := Accept(listeners, q.Load.Tag, len(conns), len(conns)+MaxPending, func(flow int, c *net.TCPConn) {
		mu.Lock()
		defer mu.Unlock()
		if conns[flow] != nil {
			c.Close()
		} else if _, err := c.Write(Welcome(q.Load.Tag)); err != nil {
			c.Close()
		} else {
			c.SetDeadline(time.Time{})
			conns[flow] = c
			if missing--; missing == 0 {
				close(full)
			}
		}
	})
	select {
	case <-full:
	case <-ctx.Done():
		err = fmt.Errorf("wait for %d connections on %v port %d: %w", len(conns), q.Addr, port, ctx.Err())
	}

	a.Close()
	return port, err
}

// ListenTCP listens on each path. The port is the same on all paths.
func ListenTCP(ctx context.Context, q Request) (listeners []net.Listener, port int, err error) {
	lc := net.ListenConfig{Control: tune(q, CongestionOf(q.Load, FlowKey{Stream: 1})), KeepAlive: -1}
	lc.SetMultipathTCP(false)
	port = q.Port
	for _, path := range q.Paths() {
		at := netip.AddrPortFrom(path.Addr, uint16(port))
		ln, err := lc.Listen(ctx, "tcp", at.String())
		if err != nil {
			return listeners, port, fmt.Errorf("listen on %v: %w", at, host.Cause(err))
		}

		listeners, port = append(listeners, ln), ln.Addr().(*net.TCPAddr).Port
	}

	return listeners, port, nil
}

// CloseListeners closes all listeners.
func CloseListeners(listeners []net.Listener) {
	for _, ln := range listeners {
		ln.Close()
	}
}

// MaxPending is the maximum number of connections that have not sent a preamble.
const MaxPending = 64

// Acceptor accepts connections and reads their preambles. It closes connections that do not send a
// preamble in time, and connections of other loads.
type Acceptor struct {
	Listeners []net.Listener
	first     []byte // preamble of flow 0
	flows     int
	admit     func(flow int, c *net.TCPConn)
	busy      sync.WaitGroup

	mu      sync.Mutex
	pending pendingConns
	closed  bool
}

// Accept starts to accept connections. When a connection has sent the preamble of a flow, Accept calls admit
// with the connection in a new goroutine. The parameter pending limits the number of connections that wait
// for their preambles.
func Accept(listeners []net.Listener, tag string, flows, pending int,
	admit func(flow int, c *net.TCPConn)) *Acceptor {
	a := &Acceptor{
		Listeners: listeners,
		first:     Preamble(tag, 0),
		flows:     flows,
		admit:     admit,
		pending:   pendingConns{most: pending},
	}
	for _, ln := range listeners {
		a.busy.Go(func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}

				a.mu.Lock()
				if a.closed {
					a.mu.Unlock()
					c.Close()
					return
				}

				a.pending.add(c)
				a.mu.Unlock()
				a.busy.Go(func() { a.identify(c.(*net.TCPConn)) })
			}
		})
	}
	return a
}

func (a *Acceptor) identify(c *net.TCPConn) {
	c.SetDeadline(time.Now().Add(PreambleTimeout))
	b := make([]byte, PreambleSize)
	_, err := io.ReadFull(c, b)
	flow, known := ReadPreamble(b, a.first, a.flows)
	a.mu.Lock()
	a.pending.remove(c)
	closed := a.closed
	a.mu.Unlock()
	if err != nil || !known || closed {
		c.Close()
		return
	}

	a.admit(flow, c)
}

// Close closes the listeners and pending connections, and waits until all calls of admit have returned.
func (a *Acceptor) Close() {
	CloseListeners(a.Listeners)
	a.mu.Lock()
	a.closed = true
	for _, c := range a.pending.conns {
		c.Close()
	}

	a.mu.Unlock()
	a.busy.Wait()
}

// pendingConns holds the connections that have not sent a preamble, in order of arrival.
type pendingConns struct {
	most  int
	conns []net.Conn
}

// add adds a connection. If there are too many, it closes the oldest connection from the address that has
// the most, so that pending connections of one address cannot keep others out.
func (w *pendingConns) add(c net.Conn) {
	w.conns = append(w.conns, c)
	if len(w.conns) <= w.most {
		return
	}

	host := func(c net.Conn) string {
		a, _, _ := net.SplitHostPort(c.RemoteAddr().String())
		return a
	}
	from := map[string]int{}
	most := 0
	for _, c := range w.conns {
		from[host(c)]++
		most = max(most, from[host(c)])
	}

	i := slices.IndexFunc(w.conns, func(c net.Conn) bool { return from[host(c)] == most })
	w.conns[i].Close()
	w.conns = slices.Delete(w.conns, i, i+1)
}

// remove removes a connection that has sent its preamble, or has failed.
func (w *pendingConns) remove(c net.Conn) {
	i := slices.Index(w.conns, c)
	if i >= 0 {
		w.conns = slices.Delete(w.conns, i, i+1)
	}
}
