package latency

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// framing converts between the payload of a probe and the messages on the socket. The zero value adds
// nothing to the payload.
type framing struct {
	head int                                      // number of bytes before the payload
	room int                                      // number of further bytes that an answer may contain
	seal func(b []byte, seq uint64)               // completes a message before it is sent
	open func(b []byte) (payload []byte, ok bool) // returns the payload of an answer
}

// prober sends and receives probes on any system. One goroutine sends the probes, and another one receives
// the answers. The sequence number of a probe is its index in the schedule.
type prober struct {
	framing
	load    record.Load
	side    string
	tag     uint32
	payload int
	back    traffic.Phase // phase of an answer
	kernel  bool          // the far kernel answers, not an echo process
	write   func(b []byte) (int, error)

	window record.Window
	due    schedule
	stop   atomic.Bool
	newest atomic.Int64 // latest RTT in ns, for the live view

	sent    []atomic.Int64 // CLOCK_MONOTONIC of sending in ns; 0 means not sent
	emitted atomic.Int64   // number of probes that the kernel accepted
	allSent atomic.Bool

	// The following fields belong to the sending goroutine.
	taken      []int32 // indexes of probes that the kernel accepted, in order
	skipped    int64
	failed     int64
	scheduling string
	begin, end traffic.Mark // resource usage at the start and end of the window

	// The following fields belong to the receiving goroutine.
	answers    []answer
	answered   int64
	duplicates int64
	strays     int64
}

type answer struct {
	at        int64 // CLOCK_MONOTONIC of the answer in ns; 0 means none
	tx, rx    int64 // the kernel's time stamps, CLOCK_REALTIME in ns; 0 means none
	residence int64
}

func newProber(q traffic.Request, write func(b []byte) (int, error)) *prober {
	return &prober{
		load:       q.Load,
		side:       q.Side,
		tag:        traffic.TagHash(traffic.TagProbe, q.Load.Tag),
		payload:    q.Load.PacketSize - traffic.PacketOverhead(q.Load.IP),
		back:       traffic.PhaseEcho,
		scheduling: "normal",
		write:      write,
	}
}

// run calls send and receive in separate goroutines, and reports progress.
func (p *prober) run(ctx context.Context, w record.Window, say func(traffic.Progress) error,
	send, receive func()) error {
	long := time.Duration(w.End - w.Begin)
	n := long / p.load.Interval
	if n > maxProbes {
		return fmt.Errorf("probe every %v for %v: %d probes, more than %d", p.load.Interval, long, n,
			maxProbes)
	}

	p.window, p.due = w, NewSchedule(w, int64(p.load.Interval), p.load.Spacing, uint64(p.tag))
	p.sent, p.answers = make([]atomic.Int64, p.due.N), make([]answer, p.due.N)
	p.taken = make([]int32, 0, p.due.N)
	defer context.AfterFunc(ctx, func() { p.stop.Store(true) })()
	var both, teller sync.WaitGroup
	both.Go(func() {
		defer p.allSent.Store(true)
		send()
	})
	both.Go(receive)
	done := make(chan struct{})
	teller.Go(func() {
		traffic.Tell(done, say, func() (traffic.Progress, bool) {
			rtt := p.newest.Load()
			return traffic.Progress{At: traffic.Monotonic(), RTT: rtt}, rtt > 0
		})
	})
	both.Wait()
	p.sendEnd()
	close(done)
	teller.Wait()
	return ctx.Err()
}

// sendEnd sends end marks to the echo. If all of them are lost, the echo runs until the end of the
// timeline.
func (p *prober) sendEnd() {
	if p.kernel {
		return
	}

	b := make([]byte, p.payload)
	traffic.Datagram{Tag: p.tag, Phase: traffic.PhaseCooldown}.Put(b)
	for range 3 {
		p.write(b)
	}
}

// sendAll sends each probe when it is due. tids holds the id of the sending thread, or is empty if the sender
// has no thread of its own.
func (p *prober) sendAll(tids []atomic.Int64) {
	b := make([]byte, p.head+p.payload)
	p.begin = traffic.TakeMark(tids)
	for i := 0; i < len(p.sent); i++ {
		if i == p.due.First {
			p.begin = traffic.TakeMark(tids)
		}

		traffic.SleepUntil(p.due.at(i), &p.stop)
		if p.stop.Load() {
			break
		}

		// Skip a probe that is late by a whole interval, because probes in a burst would delay each other.
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

		p.sent[i].Store(traffic.Monotonic())
		if _, err := p.write(b); err != nil {
			p.failed++
			continue
		}

		p.emitted.Add(1)
		p.taken = append(p.taken, int32(i))
	}

	p.end = traffic.TakeMark(tids)
	p.end.Place(tids)
}

// listening reports whether more answers may arrive, so that the prober must continue to receive.
func (p *prober) listening() bool {
	return !p.stop.Load() && traffic.Monotonic() < p.window.Stop &&
		!(p.allSent.Load() && p.answered >= p.emitted.Load())
}

// enter processes a received packet. For the first answer to a probe, it returns the payload and the
// probe's entry. For all other packets, it returns nil.
func (p *prober) enter(b []byte, at int64) (payload []byte, first *answer) {
	if p.open != nil {
		var ok bool
		if b, ok = p.open(b); !ok {
			return nil, nil // not an answer, because a raw socket also receives other packets
		}
	}

	d, ok := traffic.ReadDatagram(b)
	if !ok || len(b) < echoHeader || d.Tag != p.tag || d.Phase != p.back || d.Seq >= uint64(len(p.answers)) {
		// Late messages of the hello do not count, because they have another tag.
		if d.Phase != traffic.PhaseWelcome && d.Phase != traffic.PhaseChallenge &&
			d.Phase != traffic.PhaseHello {
			p.strays++
		}
		return nil, nil
	}

	a := &p.answers[d.Seq]
	if a.at != 0 {
		if int(d.Seq) >= p.due.First {
			p.duplicates++
		}
		return nil, nil
	}

	p.answered++
	a.at = at
	p.newest.Store(at - p.sent[d.Seq].Load())
	return b, a
}

// network returns the RTT according to the kernel's time stamps, minus the residence time in the echo
// process. It returns 0 if the RTT is unknown.
func (p *prober) network(a *answer) int64 {
	if a.tx == 0 || a.rx == 0 || a.residence <= 0 && !p.kernel {
		return 0
	}
	return max(a.rx-a.tx-a.residence, 0)
}

// report returns the probes of the window with their answers. The RTTs are computed from kernel time stamps
// only if all answered probes have them. RTTs with and without kernel time stamps are never mixed, because
// they include different delays.
func (p *prober) report() *record.Latency {
	l := &record.Latency{
		IntervalNs:   int64(p.load.Interval),
		Size:         p.load.PacketSize,
		Stamps:       "kernel",
		Spacing:      cmp.Or(p.load.Spacing, record.Isochronous),
		Duplicates:   p.duplicates,
		SkippedSlots: p.skipped,
		Details: map[string]string{"probe.scheduling": p.scheduling,
			"strays": strconv.FormatInt(p.strays, 10)},
		Ends: map[string]record.EndUsage{p.side: traffic.UsageBetween(p.begin, p.end)},
	}
	unstamped := 0
	for i := p.due.First; i < len(p.answers); i++ {
		a := &p.answers[i]
		if a.at != 0 && p.network(a) == 0 {
			unstamped++
		}
	}

	if p.failed > 0 {
		l.Details["sends_refused"] = strconv.FormatInt(p.failed, 10)
	}

	if unstamped > 0 {
		l.Stamps = "user"
		l.Details["unstamped"] = strconv.Itoa(unstamped)
		l.Caveats = append(l.Caveats, record.Caveat{
			Kind: "user-stamps",
			Text: "latency includes the tester's own wake-ups: the kernel did not stamp every probe",
		})
	}

	l.Includes = includes(l.Stamps, p.kernel)
	for i := p.due.First; i < len(p.sent); i++ {
		sent := p.sent[i].Load()
		a := &p.answers[i]
		if sent == 0 {
			continue
		}

		user := int64(-1)
		rtt := int64(-1)
		if a.at != 0 {
			user = max(a.at-sent, 1)
			rtt = user
		}

		if a.at != 0 && unstamped == 0 {
			rtt = p.network(a)
		}

		l.RTT = append(l.RTT, rtt)
		l.UserRTT = append(l.UserRTT, user)
		l.SentAt = append(l.SentAt, sent)
		l.Late = append(l.Late, sent-p.due.at(i))
		l.EchoNs = append(l.EchoNs, max(a.residence, 0))
	}

	return l
}
