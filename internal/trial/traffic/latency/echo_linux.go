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

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// Serve is the node half of the latency probe.
func (Echo) Serve(ctx context.Context, s host.Session) error {
	return serveEcho(ctx, s, newEchoer, connectEcho)
}

// newEchoer answers probes from the first hello on, for which it waits.
func newEchoer(ctx context.Context, q traffic.Request, listening func(port int) error) (traffic.Running,
	error) {
	fd, at, err := traffic.BindUDP(netip.AddrPortFrom(q.Addr, uint16(q.Port)))
	if err != nil {
		return nil, err
	}
	e := &echoer{stampedSocket: newStampedSocket(fd, q.Load.PacketSize), hellos: traffic.NewHellos(q, 1),
		tag: traffic.TagHash(traffic.TagProbe, q.Load.Tag), tids: make([]atomic.Int64, 1),
		measured: make(chan struct{}), done: make(chan struct{})}
	e.letGo = sync.OnceFunc(func() { close(e.measured) })
	unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1)
	go func() {
		defer close(e.done)
		e.run()
	}()
	err = listening(int(at.Port()))
	for limit := traffic.Monotonic() + int64(traffic.Patience); err == nil && !e.helloSeen.Load(); {
		if err = ctx.Err(); err == nil && traffic.Monotonic() > limit {
			err = fmt.Errorf("wait for a probe on udp %v: nothing within %v", at, traffic.Patience)
		}
		traffic.Nap(traffic.HelloInterval / 4)
	}
	if err != nil {
		e.Close()
		return nil, err
	}
	return e, nil
}

// Run lets probes be answered until the timeline ends.
func (e *echoer) Run(ctx context.Context, w record.Window, _ func(traffic.Glimpse) error) ([]any, error) {
	defer context.AfterFunc(ctx, func() { e.stop.Store(true) })()
	traffic.SleepUntil(w.Start, &e.stop)
	begin := traffic.TakeMark(traffic.Monotonic(), 0, e.tids)
	traffic.SleepUntil(w.End, &e.stop)
	end := traffic.TakeMark(traffic.Monotonic(), 0, e.tids)
	end.Place(e.tids)
	e.letGo()
	traffic.SleepUntil(w.Stop, &e.stop)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	e.stop.Store(true)
	<-e.done
	return []any{echoReport{Echoed: e.echoed, Scheduling: e.scheduling,
		Usage: traffic.UsageBetween(begin, end)}}, nil
}

// Close ends the thread.
func (e *echoer) Close() {
	e.stop.Store(true)
	e.letGo()
	<-e.done
	e.stampedSocket.Close()
}

// echoer sends probes back with the time they spent here.
type echoer struct {
	*stampedSocket
	hellos    *traffic.Hellos
	tag       uint32         // of probes
	prober    netip.AddrPort // who has said hello; owned by run
	stop      atomic.Bool
	helloSeen atomic.Bool
	tids      []atomic.Int64 // of the one thread
	// measured is closed when nobody asks for the thread's time any more: the prober may end before the
	// window does.
	measured chan struct{}
	letGo    func()        // closes it
	done     chan struct{} // the thread has ended

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
		from := e.source()
		switch {
		case !ok:
		case d.Phase == traffic.PhaseHello:
			e.welcome(e.buffer[:n], from)
		case d.Tag != e.tag || from != e.prober:
		case d.Phase == traffic.PhaseCooldown:
			e.stop.Store(true)
		case d.Phase == traffic.PhaseProbe && n >= echoHeader:
			e.echo(n, readStamps(control).at)
		}
	}
	<-e.measured
}

// welcome answers a hello. From the first one on that holds its cookie nobody else is heard.
func (e *echoer) welcome(b []byte, from netip.AddrPort) {
	flow, answer := e.hellos.Judge(b, from)
	if flow >= 0 && !e.prober.IsValid() { // before, anybody could have a realtime thread at work
		e.prober = from
		e.settleOn()
		e.scheduling = traffic.Raise()
	}
	if answer == nil || flow >= 0 && from != e.prober {
		return
	}
	if e.reply(answer) == nil && flow >= 0 {
		e.helloSeen.Store(true)
	}
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
