package stream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// Sizes and times of the portable sockets of datagrams.
const (
	portableRoom      = 4 << 20 // bytes of socket buffer asked for at first
	leastPortableRoom = 64 << 10
	portableLook      = 5 * time.Millisecond  // how often a receiver looks whether it is over
	portableWait      = 20 * time.Millisecond // how long it waits for a datagram before
	portableFull      = 50 * time.Microsecond // how long a sender waits for a queue that is full
)

// portableUDP is one end of a stream of datagrams, moved by package net one by one.
type portableUDP struct {
	udpCount
	conn *net.UDPConn   // its own, or the listener's, which all flows of a path share
	to   netip.AddrPort // where to send by the listener's; invalid where conn is connected
	pace traffic.Pace
}

// connectPortableUDP makes the flows. As on Linux the opener's hello shows the listener where a flow comes
// from.
func connectPortableUDP(ctx context.Context, l *traffic.Half, listening func(port int) error) error {
	q := l.Request
	flows := make([]*portableUDP, len(l.Keys))
	for i, k := range l.Keys {
		f := &portableUDP{pace: traffic.NewPace(q.Load.RateBps/float64(len(l.Keys)),
			traffic.MeanPayload(q.Load))}
		f.open(q, i, k, len(l.Keys))
		flows[i] = f
	}
	l.Mode = func() string {
		return "portable: udp, exact mode, a system call for each datagram, its time that of the program"
	}
	conns, err := meetPortable(ctx, l, flows, listening)
	if err != nil {
		return err
	}
	received := map[*net.UDPConn]*portableSink{}
	for i, f := range flows {
		l.Flows[i] = f
		makeRoom(f.conn.SetReadBuffer)
		makeRoom(f.conn.SetWriteBuffer)
		if f.sends {
			l.Workers = append(l.Workers, portableSource{f})
			continue
		}
		k := received[f.conn]
		if k == nil {
			k = &portableSink{conn: f.conn, byFlow: make([]*portableUDP, len(flows))}
			received[f.conn] = k
			l.Workers = append(l.Workers, k)
		}
		k.flows, k.byFlow[i] = append(k.flows, f), f
	}
	l.Release = conns.close
	return nil
}

// makeRoom asks for a socket buffer. The BSDs refuse one beyond their limit (kern.ipc.maxsockbuf) altogether.
func makeRoom(set func(bytes int) error) {
	for room := portableRoom; room >= leastPortableRoom && set(room) != nil; room /= 2 {
	}
}

// portableConns are the sockets of an end.
type portableConns []*net.UDPConn

func (a portableConns) close() {
	for _, c := range a {
		c.Close()
	}
}

// meetPortable gives each flow its socket, and where to send. On error there are none.
func meetPortable(ctx context.Context, l *traffic.Half, flows []*portableUDP,
	listening func(port int) error) (conns portableConns, err error) {
	defer func() {
		if err != nil {
			conns.close()
			conns = nil
		}
	}()
	q := l.Request
	if q.Listen {
		port := q.Port
		for _, path := range q.Paths() {
			c, err := traffic.ListenUDP(ctx, netip.AddrPortFrom(path.Addr, uint16(port)))
			if err != nil {
				return conns, err
			}
			conns, port = append(conns, c), c.LocalAddr().(*net.UDPAddr).Port
		}
		if err := listening(port); err != nil {
			return conns, err
		}
		return conns, awaitHellos(ctx, l, conns, flows)
	}
	for _, f := range flows {
		c, err := traffic.DialUDP(ctx, q.PathOf(f.key), q.Port)
		if err != nil {
			return conns, err
		}
		conns = append(conns, c)
		f.conn, f.addr = c, c.LocalAddr().String()
	}
	errs := make([]error, len(flows))
	var saying sync.WaitGroup
	for i, f := range flows {
		saying.Go(func() { errs[i] = traffic.SayHelloBy(ctx, f.conn, q, i) })
	}
	saying.Wait()
	for _, err := range errs {
		if err != nil {
			return conns, err
		}
	}
	return conns, nil
}

// awaitHellos answers the hellos at the listeners until each flow has said one, within Patience, and then
// goes on until the load's begin, because a welcome may be lost.
func awaitHellos(ctx context.Context, l *traffic.Half, conns portableConns, flows []*portableUDP) error {
	ctx, cancel := context.WithTimeout(ctx, traffic.Patience)
	defer cancel()
	g, full, missing := traffic.NewHellos(l.Request, len(flows)), make(chan struct{}), len(flows)
	var mu sync.Mutex
	admit := func(flow int, c *net.UDPConn, from netip.AddrPort) bool {
		mu.Lock()
		defer mu.Unlock()
		f := flows[flow]
		if f.conn == nil {
			f.conn, f.to, f.addr = c, from, c.LocalAddr().String()
			if missing--; missing == 0 {
				close(full)
			}
		}
		return f.conn == c && f.to == from
	}
	var answering sync.WaitGroup
	for _, c := range conns {
		answering.Go(func() {
			b := make([]byte, 1<<16)
			for {
				n, from, err := c.ReadFromUDPAddrPort(b)
				if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() ||
					errors.Is(err, net.ErrClosed) {
					return
				}
				flow, answer := g.Judge(b[:n], from)
				if answer != nil && (flow < 0 || admit(flow, c, from)) {
					c.WriteToUDPAddrPort(answer, from)
				}
			}
		})
	}
	end := func() {
		for _, c := range conns {
			c.SetReadDeadline(time.Unix(1, 0))
		}
		answering.Wait()
	}
	select {
	case <-full:
		l.EndSetup = end
		return nil
	case <-ctx.Done():
		end()
		return fmt.Errorf("wait for %d flows on udp %v: %w", len(flows), conns[0].LocalAddr(), ctx.Err())
	}
}

// Unblock ends a call that waits for room; a receiver waits only for moments.
func (f *portableUDP) Unblock(how traffic.Urgency) {
	if how == traffic.AtOnce {
		f.conn.SetWriteDeadline(time.Unix(1, 0))
	}
}

// Close leaves the socket to the end, which closes all.
func (*portableUDP) Close() {}

// portableSource sends a flow.
type portableSource struct{ *portableUDP }

func (s portableSource) Name() string { return s.name() }

// Run offers load from Begin to End, then sends ends of stream until the senders' stop.
func (s portableSource) Run(p *traffic.Phases) error {
	f, b := s.portableUDP, make([]byte, s.payload)
	f.pattern.Fill(b, 0)
	traffic.SleepUntil(p.Begin, &p.Abandoned)
	f.pace.Begin(traffic.Monotonic())
	phase, next := traffic.PhaseWarmup, p.Start
	for !p.Abandoned.Load() {
		now := traffic.Monotonic()
		if phase == traffic.PhaseWarmup && now >= p.Start {
			phase, next, f.seq, f.from = traffic.PhaseWindow, p.End, 0, now
			f.pace.Most()
		}
		if phase == traffic.PhaseWindow && now >= p.End {
			f.sent, f.till = int64(f.seq), now
			break
		}
		n, wake := f.pace.Due(now)
		if n == 0 {
			traffic.SleepUntil(min(wake, next), &p.Abandoned)
			continue
		}
		for n = min(n, traffic.MaxBurst); n > 0 && !p.Abandoned.Load(); n-- {
			took, err := f.give(f.put(b, phase, f.seq, sendTick(time.Now().UnixNano())))
			if err != nil && !p.Over(p.End) {
				return explainSize(err, f.size)
			}
			if !took { // the rest waits for the next look at the clock
				break
			}
			f.seq++
			f.pace.Took(1)
		}
	}
	f.unsent = f.pace.Unsent(f.sent, f.till-f.from)
	f.burst = f.pace.Most() * int64(f.size)
	// Some are sent however late this goroutine is.
	for round := 0; round < leastEnds || !p.Over(p.Senders); round++ {
		if p.Abandoned.Load() {
			return nil
		}
		f.give(f.put(b, traffic.PhaseCooldown, uint64(f.sent), sendTick(time.Now().UnixNano())))
		traffic.SleepUntil(traffic.Monotonic()+int64(endInterval), &p.Abandoned)
	}
	return nil
}

// give gives a datagram to the kernel. One that finds a queue full is not taken, which is no error: the BSDs
// say so instead of letting the caller wait.
func (f *portableUDP) give(b []byte) (took bool, err error) {
	if f.to.IsValid() {
		_, err = f.conn.WriteToUDPAddrPort(b, f.to)
	} else {
		_, err = f.conn.Write(b)
	}
	if errors.Is(err, syscall.ENOBUFS) {
		time.Sleep(portableFull)
		return false, nil
	}
	if err != nil {
		return false, host.Cause(err)
	}
	f.packets.Add(1)
	f.bytes.Add(int64(len(b)))
	return true, nil
}

// portableSink receives the flows of one socket.
type portableSink struct {
	conn   *net.UDPConn
	flows  []*portableUDP
	byFlow []*portableUDP // the same, by index; nil is another's
}

func (k *portableSink) Name() string { return fmt.Sprintf("datagrams at %v", k.conn.LocalAddr()) }

// Run reads until the senders have ended their streams, or until the planned stop.
func (k *portableSink) Run(p *traffic.Phases) error {
	b, look := make([]byte, 1<<16), int64(0)
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
		timeout, ok := errors.AsType[net.Error](err)
		switch {
		case err == nil:
			k.enter(b[:n])
		case ok && timeout.Timeout():
			look = 0
		case !errors.Is(err, syscall.ECONNREFUSED):
			return fmt.Errorf("receive: %w", host.Cause(err))
		}
	}
	return nil
}

// complete says that the senders have ended their streams.
func (k *portableSink) complete(now int64) bool {
	return !slices.ContainsFunc(k.flows, func(f *portableUDP) bool { return !f.over(now) })
}

func (k *portableSink) enter(b []byte) {
	d, ok := traffic.ReadDatagram(b)
	f, stray := flowOf(k.byFlow, k.flows[0].tag, d, ok)
	if stray {
		k.flows[0].wrong++ // whose it was meant to be is not known
	}
	if f != nil {
		f.take(b, len(b), d, traffic.Monotonic(), 0)
		f.tell()
	}
}
