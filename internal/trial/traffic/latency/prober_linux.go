package latency

import (
	"context"
	"encoding/binary"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// connectEcho is the opener's half of the echo.
func connectEcho(ctx context.Context, q traffic.Request) (traffic.Running, error) {
	var p *prober
	err := traffic.SayHello(ctx, q, []traffic.FlowKey{{Stream: 1}},
		func(_, fd int, _, to netip.AddrPort) error {
			p = newProber(fd, q, framing{})
			return traffic.Connect(fd, to, q.Load.IP)
		})
	if err == nil {
		return p.ready(), nil
	}
	if p != nil {
		p.Close()
	}
	return nil, err
}

// ready has the kernel number what is sent from here on.
func (p *prober) ready() *prober {
	unix.SetsockoptInt(p.FD, unix.SOL_SOCKET, unix.SO_TIMESTAMPING, timestampingProbe)
	return p
}

// framing is what stands around a probe's payload in what the socket sends and receives; the zero value is
// nothing.
type framing struct {
	head int                                      // bytes before the payload
	room int                                      // further bytes that an answer may have
	seal func(b []byte, seq uint64)               // completes what is to be sent
	open func(b []byte) (payload []byte, ok bool) // of an answer
}

// prober sends on one thread and receives on another. A probe's sequence number is its index in the schedule.
type prober struct {
	*stampedSocket
	framing
	tag      uint32
	payload  int
	reply    traffic.Phase // of an answer
	interval time.Duration
	spacing  string
	kernel   bool // the far kernel answers, not an echo

	window record.Window
	due    schedule
	stop   atomic.Bool
	newest atomic.Int64 // latest RTT, for the live view

	// Owned by the sending thread.
	sent       []sentProbe
	ids        []int32 // the kernel's number → index
	skipped    int64
	failed     int64
	scheduling string
	begin, end traffic.Mark // of the window

	emitted atomic.Int64 // probes that the kernel took
	allSent atomic.Bool

	// Owned by the receiving thread.
	answers    []answer
	answered   int64
	duplicates int64
	strays     int64
	queued     []stamps // TX stamps, joined to their probes at the end
}

type sentProbe struct {
	at   atomic.Int64 // also read by the receiving thread
	late int64
	sent bool
}

type answer struct {
	at        int64 // CLOCK_MONOTONIC
	rx        int64
	residence int64
}

func newProber(fd int, q traffic.Request, f framing) *prober {
	return &prober{stampedSocket: newStampedSocket(fd, q.Load.PacketSize+f.room), framing: f,
		tag:     traffic.TagHash(traffic.TagProbe, q.Load.Tag),
		payload: q.Load.PacketSize - traffic.PacketOverhead(q.Load.IP),
		reply:   traffic.PhaseEcho, interval: q.Load.Interval, spacing: q.Load.Spacing}
}

// Run probes along the timeline. The report has a part for each so many probes.
func (p *prober) Run(ctx context.Context, w record.Window, say func(traffic.Glimpse) error) ([]any, error) {
	if err := few(w, p.interval); err != nil {
		return nil, err
	}
	p.window, p.due = w, NewSchedule(w, int64(p.interval), p.spacing, uint64(p.tag))
	n := p.due.N
	p.sent, p.answers = make([]sentProbe, n), make([]answer, n)
	p.ids, p.queued = make([]int32, 0, n), make([]stamps, 0, n)
	end := context.AfterFunc(ctx, func() { p.stop.Store(true) })
	var threads, teller sync.WaitGroup
	threads.Go(p.send)
	threads.Go(p.receive)
	done := make(chan struct{})
	teller.Go(func() {
		traffic.Tell(done, say, func() (traffic.Glimpse, bool) {
			rtt := p.newest.Load()
			return traffic.Glimpse{At: traffic.Monotonic(), RTT: rtt}, rtt > 0
		})
	})
	threads.Wait()
	p.sendEnd()
	close(done)
	teller.Wait()
	end()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return p.report().parts(), nil
}

// sendEnd tells the echoing end that it may go. It does not matter if that is lost: then it stays until the
// end of the timeline.
func (p *prober) sendEnd() {
	if p.kernel {
		return
	}
	b := make([]byte, p.payload)
	traffic.Datagram{Tag: p.tag, Phase: traffic.PhaseCooldown}.Put(b)
	for range 3 {
		unix.Write(p.FD, b)
	}
}

func (p *prober) send() {
	tid := traffic.OwnThread()
	defer p.allSent.Store(true)
	p.scheduling = traffic.Raise()
	tids := make([]atomic.Int64, 1)
	tids[0].Store(int64(tid))
	b := make([]byte, p.head+p.payload)
	p.begin = traffic.TakeMark(traffic.Monotonic(), 0, tids)
	for i := 0; i < len(p.sent); i++ {
		if i == p.due.First {
			p.begin = traffic.TakeMark(traffic.Monotonic(), 0, tids)
		}
		traffic.SleepUntil(p.due.at(i), &p.stop)
		if p.stop.Load() {
			break
		}
		// A probe that is late by a whole interval is left out: sent in a burst they would measure each
		// other.
		for i+1 < len(p.sent) && traffic.Monotonic()-p.due.at(i) >= p.due.interval {
			if i >= p.due.First {
				p.skipped++
			}
			i++
		}
		traffic.Datagram{Tag: p.tag, Phase: traffic.PhaseProbe, Seq: uint64(i)}.Put(b[p.head:])
		if p.seal != nil {
			p.seal(b, uint64(i))
		}
		at := traffic.Monotonic()
		p.sent[i].at.Store(at)
		p.sent[i].late, p.sent[i].sent = at-p.due.at(i), true
		if _, err := traffic.Write(p.FD, b); err != nil {
			p.failed++
			continue
		}
		p.emitted.Add(1)
		p.ids = append(p.ids, int32(i))
	}
	p.end = traffic.TakeMark(traffic.Monotonic(), 0, tids)
	p.end.Place(tids)
}

func (p *prober) receive() {
	traffic.OwnThread()
	traffic.Raise()
	for !p.stop.Load() && traffic.Monotonic() < p.window.Stop && !p.complete() {
		n, control, err := p.stampedSocket.receive(0) // at most receiveTimeout
		at := traffic.Monotonic()
		if err == nil {
			p.enter(p.buffer[:n], at, readStamps(control).at)
		}
		for {
			_, control, err := p.stampedSocket.receive(unix.MSG_ERRQUEUE | unix.MSG_DONTWAIT)
			if err != nil {
				break
			}
			if s := readStamps(control); s.tx && s.who == stampEntersQueue {
				p.queued = append(p.queued, s)
			}
		}
	}
}

// complete says that every probe has been sent and answered, so that there is nothing to wait for.
func (p *prober) complete() bool { return p.allSent.Load() && p.answered >= p.emitted.Load() }

func (p *prober) enter(b []byte, at, stamp int64) {
	if p.open != nil {
		var ok bool
		if b, ok = p.open(b); !ok {
			return // a raw socket hears what others get
		}
	}
	d, ok := traffic.ReadDatagram(b)
	if !ok || len(b) < echoHeader || d.Tag != p.tag || d.Phase != p.reply || d.Seq >= uint64(len(p.answers)) {
		// what is left of the hello has another tag
		if d.Phase != traffic.PhaseWelcome && d.Phase != traffic.PhaseChallenge &&
			d.Phase != traffic.PhaseHello {
			p.strays++
		}
		return
	}
	a := &p.answers[d.Seq]
	if a.at != 0 {
		if int(d.Seq) >= p.due.First {
			p.duplicates++
		}
		return
	}
	p.answered++
	*a = answer{at: at, rx: stamp, residence: int64(binary.BigEndian.Uint64(b[traffic.DatagramHeader:]))}
	p.newest.Store(at - p.sent[d.Seq].at.Load())
}

// report joins the probes of the window with their answers and stamps.
func (p *prober) report() probeReport {
	tx := make([]int64, len(p.sent))
	// A refused send may or may not have used up a number, so that the numbers behind it mean nothing.
	if p.failed == 0 {
		for _, s := range p.queued {
			if int(s.id) < len(p.ids) && tx[p.ids[s.id]] == 0 {
				tx[p.ids[s.id]] = s.at
			}
		}
	}
	r := probeReport{Duplicates: p.duplicates, Skipped: p.skipped, Strays: p.strays, Failed: p.failed,
		Scheduling: p.scheduling, KernelEcho: p.kernel, Usage: traffic.UsageBetween(p.begin, p.end)}
	for i := p.due.First; i < len(p.sent); i++ {
		if !p.sent[i].sent {
			continue
		}
		q := probe{Sent: p.sent[i].at.Load(), Late: p.sent[i].late}
		if a := p.answers[i]; a.at != 0 {
			q.User, q.TX, q.RX, q.Residence = max(a.at-q.Sent, 1), tx[i], a.rx, a.residence
		}
		r.Probes = append(r.Probes, q)
	}
	return r
}
