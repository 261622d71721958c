package latency

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// Serve is the node half of the latency probe: the listener echoes, the opener probes.
func (Echo) Serve(ctx context.Context, s host.Session) error {
	var q traffic.Request
	if err := s.Recv(&q); err != nil {
		return err
	}
	if q.Check {
		return s.Send(check.OK())
	}
	if err := traffic.PinProcess(q.CPUs); err != nil {
		return err
	}
	traffic.MakeRoom(4)
	if q.Listen {
		return serveEcho(ctx, s, q)
	}
	return serveProbe(ctx, s, q)
}

// serveEcho answers probes until the timeline ends.
func serveEcho(ctx context.Context, s host.Session, q traffic.Request) error {
	at := netip.AddrPortFrom(q.Addr, uint16(q.Port))
	fd, err := traffic.BindUDP(at)
	if err != nil {
		return err
	}
	e := &echoer{stampedSocket: newStampedSocket(fd, q.Load.PacketSize), tag: traffic.TagHash(q.Load.Tag),
		tids: make([]atomic.Int64, 1), measured: make(chan struct{})}
	defer e.Close()
	letGo := sync.OnceFunc(func() { close(e.measured) })
	unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1)
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return fmt.Errorf("read the port of %v: %w", at, err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		e.run()
	}()
	defer func() {
		e.stop.Store(true)
		letGo()
		<-done
	}()
	defer context.AfterFunc(ctx, func() { e.stop.Store(true) })()
	if err := s.Send(traffic.Message{Listening: int(traffic.AddrPort(sa).Port())}); err != nil {
		return err
	}
	if err := awaitHello(ctx, e); err != nil {
		return err
	}
	if err := s.Send(traffic.Message{Ready: true}); err != nil {
		return err
	}
	var w record.Window
	if err := s.Recv(&w); err != nil {
		return err
	}
	traffic.SleepUntil(w.Start, &e.stop)
	begin := traffic.TakeMark(traffic.Monotonic(), 0, e.tids)
	traffic.SleepUntil(w.End, &e.stop)
	end := traffic.TakeMark(traffic.Monotonic(), 0, e.tids)
	end.Place(e.tids)
	letGo()
	traffic.SleepUntil(w.Stop, &e.stop)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	e.stop.Store(true)
	<-done
	return traffic.SendResult(s, echoReport{Echoed: e.echoed, Scheduling: e.scheduling,
		Usage: traffic.UsageBetween(begin,
			end)})
}

// awaitHello waits for the first hello.
func awaitHello(ctx context.Context, e *echoer) error {
	limit := traffic.Monotonic() + int64(traffic.Patience)
	for !e.helloSeen.Load() {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if traffic.Monotonic() > limit {
			return fmt.Errorf("wait for a probe on udp %s: nothing within %v", e.Local(), traffic.Patience)
		}
		traffic.Nap(traffic.HelloInterval / 4)
	}
	return nil
}

// echoer sends probes back with the time they spent here.
type echoer struct {
	*stampedSocket
	tag       uint32
	stop      atomic.Bool
	helloSeen atomic.Bool
	tids      []atomic.Int64 // of the one thread
	// measured is closed when nobody asks for the thread's time any more: the prober may take leave before
	// the window ends.
	measured chan struct{}

	echoed     int64 // owned by run
	scheduling string
}

func (e *echoer) run() {
	e.tids[0].Store(int64(traffic.OwnThread()))
	for !e.stop.Load() {
		n, control, err := e.receive(0)
		if err != nil {
			continue // time-out, signal, or the echo of an ICMP error
		}
		d, ok := traffic.ReadDatagram(e.buffer[:n])
		if !ok || d.Tag != e.tag {
			continue
		}
		switch d.Phase {
		case traffic.PhaseHello:
			if !e.helloSeen.Load() { // before, strangers could have a realtime thread at work
				e.settleOn()
				e.scheduling = traffic.Raise()
			}
			e.buffer[6] = byte(traffic.PhaseWelcome)
			if e.reply(e.buffer[:n]) == nil {
				e.helloSeen.Store(true)
			}
		case traffic.PhaseCooldown:
			e.stop.Store(true)
		case traffic.PhaseProbe:
			if n >= echoHeader {
				e.echo(n, readStamps(control).at)
			}
		}
	}
	<-e.measured
}

// echo returns the buffer. The residence is the time from the kernel's stamp of the arrival to just before
// the answer is given to the kernel.
func (e *echoer) echo(n int, arrived int64) {
	e.buffer[6] = byte(traffic.PhaseEcho)
	residence := int64(-1)
	if arrived != 0 {
		residence = max(time.Now().UnixNano()-arrived, 1)
	}
	binary.BigEndian.PutUint64(e.buffer[traffic.DatagramHeader:], uint64(residence))
	if e.reply(e.buffer[:n]) == nil {
		e.echoed++
	}
}
