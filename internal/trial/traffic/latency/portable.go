package latency

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// ServePortable is a node half of the latency probe that needs no more than package net. It has no stamps of
// the kernel's, so that round trips have the wake-ups of both ends' processes in them, whatever the other end
// is.
func ServePortable(ctx context.Context, s host.Session) error {
	return serveEcho(ctx, s, newPortableEchoer, newPortableProber)
}

// portableWait is how long a receiver waits before it looks whether it is over.
const portableWait = 20 * time.Millisecond

// portableEchoer sends probes back, and says that the time they spent here is not known.
type portableEchoer struct {
	conn   *net.UDPConn
	hellos *traffic.Hellos
	tag    uint32         // of probes
	prober netip.AddrPort // who has said hello; owned by serve
	said   chan struct{}  // closed when somebody has
	stop   atomic.Bool
	done   chan struct{} // serve has ended
	echoed int64         // owned by serve
}

// newPortableEchoer answers probes from the first hello on, for which it waits.
func newPortableEchoer(ctx context.Context, q traffic.Request, listening func(port int) error) (
	traffic.Running, error) {
	ctx, cancel := context.WithTimeout(ctx, traffic.Patience)
	defer cancel()
	c, err := traffic.ListenUDP(ctx, netip.AddrPortFrom(q.Addr, uint16(q.Port)))
	if err != nil {
		return nil, err
	}
	e := &portableEchoer{conn: c, hellos: traffic.NewHellos(q, 1), said: make(chan struct{}),
		tag: traffic.TagHash(traffic.TagProbe, q.Load.Tag), done: make(chan struct{})}
	go func() {
		defer close(e.done)
		e.serve()
	}()
	if err = listening(c.LocalAddr().(*net.UDPAddr).Port); err == nil {
		select {
		case <-e.said:
			return e, nil
		case <-ctx.Done():
			err = fmt.Errorf("wait for a probe on udp %v: %w", c.LocalAddr(), ctx.Err())
		}
	}
	e.Close()
	return nil, err
}

func (e *portableEchoer) serve() {
	for b := make([]byte, 1<<16); !e.stop.Load(); {
		e.conn.SetReadDeadline(time.Now().Add(portableWait))
		n, from, err := e.conn.ReadFromUDPAddrPort(b)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		d, ok := traffic.ReadDatagram(b[:max(n, 0)])
		switch {
		case err != nil || !ok:
		case d.Phase == traffic.PhaseHello:
			e.welcome(b[:n], from)
		case d.Tag != e.tag || from != e.prober:
		case d.Phase == traffic.PhaseCooldown:
			return
		case d.Phase == traffic.PhaseProbe && n >= echoHeader:
			b[6] = byte(traffic.PhaseEcho)
			binary.BigEndian.PutUint64(b[traffic.DatagramHeader:], ^uint64(0)) // -1: not known
			if _, err := e.conn.WriteToUDPAddrPort(b[:n], from); err == nil {
				e.echoed++
			}
		}
	}
}

// welcome answers a hello. From the first one on that holds its cookie nobody else is heard.
func (e *portableEchoer) welcome(b []byte, from netip.AddrPort) {
	flow, answer := e.hellos.Judge(b, from)
	first := flow >= 0 && !e.prober.IsValid()
	if first {
		e.prober = from
	}
	if answer == nil || flow >= 0 && from != e.prober {
		return
	}
	e.conn.WriteToUDPAddrPort(answer, from)
	if first {
		close(e.said)
	}
}

// Run lets probes be answered until the timeline ends.
func (e *portableEchoer) Run(ctx context.Context, w record.Window, _ func(traffic.Glimpse) error) ([]any,
	error) {
	defer context.AfterFunc(ctx, func() { e.stop.Store(true) })()
	traffic.SleepUntil(w.Start, &e.stop)
	begin := traffic.TakeMark(traffic.Monotonic(), 0, nil)
	traffic.SleepUntil(w.End, &e.stop)
	end := traffic.TakeMark(traffic.Monotonic(), 0, nil)
	select {
	case <-e.done: // the prober has ended
	case <-time.After(time.Duration(w.Stop - traffic.Monotonic())):
	case <-ctx.Done():
	}
	e.stop.Store(true)
	<-e.done
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return []any{echoReport{Echoed: e.echoed, Scheduling: "normal",
		Usage: traffic.UsageBetween(begin, end)}}, nil
}

// Close ends the echo.
func (e *portableEchoer) Close() {
	e.stop.Store(true)
	e.conn.Close()
	<-e.done
}

// portableProber probes by a socket of package net.
type portableProber struct {
	*prober
	conn *net.UDPConn
}

func newPortableProber(ctx context.Context, q traffic.Request) (traffic.Running, error) {
	c, err := traffic.DialUDP(ctx, q.Paths()[0], q.Port)
	if err != nil {
		return nil, err
	}
	if err := traffic.SayHelloBy(ctx, c, q, 0); err != nil {
		c.Close()
		return nil, err
	}
	return &portableProber{newProber(q, c.Write), c}, nil
}

// Close ends the probe.
func (p *portableProber) Close() { p.conn.Close() }

// Run probes along the timeline.
func (p *portableProber) Run(ctx context.Context, w record.Window, say func(traffic.Glimpse) error) ([]any,
	error) {
	if err := p.run(ctx, w, say, func() { p.sendAll(nil) }, p.receive); err != nil {
		return nil, err
	}
	return p.report().parts(), nil
}

func (p *portableProber) receive() {
	for b := make([]byte, 1<<16); p.listening(); {
		p.conn.SetReadDeadline(time.Now().Add(portableWait))
		n, err := p.conn.Read(b)
		at := traffic.Monotonic()
		if err == nil {
			p.enter(b[:n], at)
		} else if timeout, ok := errors.AsType[net.Error](err); !ok || !timeout.Timeout() {
			host.Pause(context.Background(), time.Millisecond) // the echo of an ICMP error
		}
	}
}
