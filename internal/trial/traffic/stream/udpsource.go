package stream

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// udpFull is the pause after an attempt to send while a queue is full.
const udpFull = 50 * time.Microsecond

// udpSource sends several flows on one thread, in turn.
type udpSource struct {
	flows  []*udpCount
	pace   traffic.Pace
	phases *traffic.Phases
	batch  int // maximum number of datagrams between two readings of the clock
	phase  traffic.Phase
	turn   int   // index of the flow that sends next
	from   int64 // time when the window began
	till   int64
	length float64 // mean IP length of the packets, in bytes

	// give sends up to n datagrams of a flow in the current phase, numbered from seq, and returns the number
	// that the kernel accepted.
	give func(flow, n int, seq uint64) (int, error)
	mark func() // called when a phase begins
}

// newUDPSource returns a source for some of the load's flows. All flows of the load share the rate
// equally.
func newUDPSource(flows []*udpCount, q traffic.Request, all, batch int) *udpSource {
	payload := traffic.MeanPayload(q.Load)
	return &udpSource{
		flows:  flows,
		batch:  batch,
		phase:  traffic.PhaseWarmup,
		mark:   func() {},
		length: payload + float64(traffic.PacketOverhead(q.Load.IP)),
		pace:   traffic.NewPace(q.Load.RateBps*float64(len(flows))/float64(all), payload),
	}
}

func (s *udpSource) Name() string { return flowNames(s.flows) }

// flowNames returns a name for the flows of a worker.
func flowNames(flows []*udpCount) string {
	return namesOf(&flows[0].ByteFlow, &flows[len(flows)-1].ByteFlow)
}

// namesOf returns a name for the flows of a worker, made of the first and the last flow.
func namesOf(first, last *traffic.ByteFlow) string {
	if first == last {
		return first.Name()
	}
	return fmt.Sprintf("streams %d to %d %s", first.Key.Stream, last.Key.Stream, first.Key.Direction)
}

// Run sends the load from Begin to End, and then end-of-stream messages until senders stop.
func (s *udpSource) Run(p *traffic.Phases) error {
	s.phases = p
	s.mark()
	traffic.SleepUntil(p.Begin, &p.Abandoned)
	s.pace.Begin(traffic.Monotonic())
	for !p.Abandoned.Load() && s.phase != traffic.PhaseCooldown {
		now := traffic.Monotonic()
		s.advance(now)
		n, wake := s.pace.Due(now)
		switch {
		case s.phase == traffic.PhaseCooldown:
		case n == 0:
			traffic.SleepUntil(min(wake, s.nextPhase()), &p.Abandoned)
		default:
			if err := s.emit(min(n, s.batch)); err != nil {
				return err
			}
		}
	}

	s.account()
	s.sendEnd()
	return nil
}

// advance enters the phase of the current time.
func (s *udpSource) advance(now int64) {
	if s.phase == traffic.PhaseWarmup && now >= s.phases.Start {
		s.phase = traffic.PhaseWindow
		s.from = now
		s.pace.Most()
		for _, f := range s.flows {
			f.seq, f.from = 0, now
		}

		s.mark()
	}

	if s.phase == traffic.PhaseWindow && now >= s.phases.End {
		s.phase = traffic.PhaseCooldown
		s.till = now
		for _, f := range s.flows {
			f.sent = int64(f.seq)
			f.till = now
		}

		s.mark()
	}
}

func (s *udpSource) nextPhase() int64 {
	if s.phase == traffic.PhaseWarmup {
		return s.phases.Start
	}
	return s.phases.End
}

// account distributes the number of unsent datagrams among the flows that sent least.
func (s *udpSource) account() {
	var total int64
	for _, f := range s.flows {
		total += f.sent
	}

	missing := s.pace.Unsent(total, s.till-s.from)
	each := (total + missing + int64(len(s.flows)) - 1) / int64(len(s.flows))
	for _, f := range s.flows {
		f.unsent = min(missing, max(0, each-f.sent))
		missing -= f.unsent
	}

	s.flows[0].unsent += missing
	s.flows[0].burst = int64(float64(s.pace.Most()) * s.length)
}

// emit sends n datagrams of the current phase. At full rate, all of them belong to one flow. At a given
// rate, the flows take turns, so that the datagrams of each flow are evenly spaced.
func (s *udpSource) emit(n int) error {
	if s.pace.Forever || len(s.flows) == 1 {
		return s.emitOf(s.next(), n)
	}

	for range n {
		if err := s.emitOf(s.next(), 1); err != nil {
			return err
		}
	}
	return nil
}

func (s *udpSource) next() int {
	i := s.turn
	if s.turn++; s.turn == len(s.flows) {
		s.turn = 0
	}
	return i
}

// emitOf sends n datagrams of a flow and counts the datagrams that the kernel accepted. If a buffer or
// queue is full, emitOf returns, and the remaining datagrams stay due.
func (s *udpSource) emitOf(flow, n int) error {
	f := s.flows[flow]
	for n > 0 && !s.phases.Abandoned.Load() {
		k, err := s.give(flow, n, f.seq)
		f.Count.Add(f.sizes.Bytes(f.seq+uint64(k)) - f.sizes.Bytes(f.seq))
		f.seq += uint64(k)
		f.packets.Add(int64(k))
		s.pace.Took(k)
		n -= k
		switch {
		case err == nil, err == syscall.EINTR:
		case err == syscall.EAGAIN:
			return nil
		case errors.Is(err, syscall.ENOBUFS):
			traffic.SleepUntil(traffic.Monotonic()+int64(udpFull), &s.phases.Abandoned)
			return nil
		case s.phases.Over(s.phases.End):
			return nil
		default:
			return explainSize(err, f.size)
		}
	}
	return nil
}

// sendEnd sends end-of-stream messages, which contain the number of datagrams sent. It sends at least
// minEnds rounds of them, even if the thread is late.
func (s *udpSource) sendEnd() {
	for round := 0; round < minEnds || !s.phases.Over(s.phases.Senders); round++ {
		for i, f := range s.flows {
			if s.phases.Abandoned.Load() {
				return
			}

			if n, err := s.give(i, 1, uint64(f.sent)); err == nil {
				f.packets.Add(int64(n))
				f.Count.Add(int64(n * f.sizes.Of(uint64(f.sent))))
			}
		}

		traffic.SleepUntil(traffic.Monotonic()+int64(endInterval), &s.phases.Abandoned)
	}
}

// udpArrivals assigns received datagrams to flows.
type udpArrivals struct {
	flows  []*udpCount
	byFlow []*udpCount // flows by index; nil for flows of other threads
}

func newUDPArrivals(flows []*udpCount, all int) *udpArrivals {
	a := &udpArrivals{flows: flows, byFlow: make([]*udpCount, all)}
	for _, f := range flows {
		a.byFlow[f.index] = f
	}
	return a
}

func (a *udpArrivals) Name() string { return flowNames(a.flows) }

// complete reports whether the senders have ended all streams.
func (a *udpArrivals) complete(now int64) bool {
	for _, f := range a.flows {
		if !f.over(now) {
			return false
		}
	}
	return true
}

// flowOf returns the flow to which a datagram belongs, or nil if the datagram is incomplete or not of this
// load. It counts such datagrams as wrong, except hellos and their answers.
func (a *udpArrivals) flowOf(d traffic.Datagram, whole bool) *udpCount {
	if whole && d.Tag == a.flows[0].tag && int(d.Flow) < len(a.byFlow) && a.byFlow[d.Flow] != nil &&
		d.Phase >= traffic.PhaseWarmup && d.Phase <= traffic.PhaseCooldown {
		return a.byFlow[d.Flow]
	}

	switch d.Phase {
	case traffic.PhaseHello, traffic.PhaseWelcome, traffic.PhaseChallenge:
	default:
		a.flows[0].wrong++ // because its flow is unknown
	}
	return nil
}
