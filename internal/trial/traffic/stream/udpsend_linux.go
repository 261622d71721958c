package stream

import (
	"encoding/binary"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

const sendBatch = 128

// udpSource sends flows on one thread, in turn.
type udpSource struct {
	flows  []*udpFlow
	pace   traffic.Pace
	phases *traffic.Phases
	batch  *traffic.Batch
	phase  traffic.Phase
	turn   int    // whose it is
	ttl    []byte // control message of a shared listener; nil where it is the socket's own business
	from   int64  // of the window
	till   int64
	length float64 // mean IP length of its packets
}

// newUDPSource sends flows, which have an equal part of the rate of all.
func newUDPSource(flows []*udpFlow, q traffic.Request, all int) *udpSource {
	return &udpSource{flows: flows, phase: traffic.PhaseWarmup,
		length: traffic.MeanPayload(q.Load) + float64(traffic.PacketOverhead(q.Load.IP)),
		pace:   traffic.NewPace(q.Load.RateBps*float64(len(flows))/float64(all), traffic.MeanPayload(q.Load))}
}

func (s *udpSource) Name() string { return workerName(s.flows) }

// Run offers load from Begin to End, then sends ends of stream until the senders' stop.
func (s *udpSource) Run(p *traffic.Phases) error {
	one := s.flows[0]
	s.phases, s.batch = p, traffic.NewBatch(sendBatch, one.payload, 0)
	for i := range sendBatch {
		one.pattern.Fill(s.batch.At(i), 0)
	}
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
			if err := s.emit(min(n, sendBatch)); err != nil {
				return err
			}
		}
	}
	s.account()
	return s.sendEnd()
}

// advance moves to the phase that the time calls for.
func (s *udpSource) advance(now int64) {
	if s.phase == traffic.PhaseWarmup && now >= s.phases.Start {
		s.phase, s.from = traffic.PhaseWindow, now
		s.pace.Most()
		for _, f := range s.flows {
			f.seq, f.from = 0, now
		}
		s.mark()
	}
	if s.phase == traffic.PhaseWindow && now >= s.phases.End {
		s.phase, s.till = traffic.PhaseCooldown, now
		for _, f := range s.flows {
			f.sent, f.till = int64(f.seq), now
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

// account deals what the rate called for and was not sent to the flows that sent least.
func (s *udpSource) account() {
	total := int64(0)
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

// Times to live of the phases in count mode, so that no receiver joins datagrams of two phases: a kernel
// joins only what has the same.
const (
	ttlWarmup   = 63
	ttlWindow   = 64
	ttlCooldown = 62
)

// mark gives what is sent from now on its phase's time to live.
func (s *udpSource) mark() {
	one := s.flows[0]
	if !one.count {
		return
	}
	ttl := map[traffic.Phase]int{traffic.PhaseWarmup: ttlWarmup, traffic.PhaseWindow: ttlWindow,
		traffic.PhaseCooldown: ttlCooldown}[s.phase]
	six := one.size-one.payload == traffic.PacketOverhead(6)
	level, option, control := unix.IPPROTO_IP, unix.IP_TTL, unix.IP_TTL
	if six {
		level, option, control = unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, unix.IPV6_HOPLIMIT
	}
	if one.listener == nil {
		for _, f := range s.flows {
			unix.SetsockoptInt(f.FD, level, option, ttl)
		}
		return
	}
	s.ttl = make([]byte, unix.CmsgSpace(4))
	h := (*unix.Cmsghdr)(unsafe.Pointer(&s.ttl[0]))
	h.Level, h.Type = int32(level), int32(control)
	h.SetLen(unix.CmsgLen(4))
	binary.NativeEndian.PutUint32(s.ttl[unix.CmsgLen(0):], uint32(ttl))
}

// emit sends n datagrams of the present phase. Flat out they are one flow's; at a rate each is the next
// one's, so that every flow is spaced evenly.
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

func (s *udpSource) next() *udpFlow {
	f := s.flows[s.turn]
	if s.turn++; s.turn == len(s.flows) {
		s.turn = 0
	}
	return f
}

// fill makes n datagrams of a flow. Those that are given to the kernel together have one send time.
func (s *udpSource) fill(f *udpFlow, n int, seq uint64) {
	tick := sendTick(time.Now().UnixNano())
	for i := range n {
		b := s.batch.Size(i, f.sizes.of(seq+uint64(i)))
		binary.BigEndian.PutUint32(b, f.tag)
		binary.BigEndian.PutUint16(b[4:], f.index)
		traffic.PutSequence(b, s.phase, seq+uint64(i), tick)
		if f.verify {
			f.pattern.Fill(b[traffic.DatagramHeader:], traffic.DatagramPosition(s.phase, seq+uint64(i)))
		}
		s.batch.Address(i, f.to, s.ttl)
	}
}

// emitOf sends n datagrams of a flow; those that the kernel did not take are not counted.
func (s *udpSource) emitOf(f *udpFlow, n int) error {
	s.fill(f, n, f.seq)
	for i := 0; i < n && !s.phases.Abandoned.Load(); {
		k, err := s.give(f, i, n)
		f.bytes.Add(f.sizes.bytes(f.seq+uint64(k)) - f.sizes.bytes(f.seq))
		f.seq += uint64(k)
		f.packets.Add(int64(k))
		s.pace.Took(k)
		i += k
		switch err {
		case nil, unix.EINTR:
		case unix.EAGAIN, unix.ENOBUFS:
			// The buffer or the queue is full: the rest waits for the next look at the clock.
			if err == unix.ENOBUFS {
				traffic.Nap(50 * time.Microsecond)
			}
			return nil
		default:
			if s.phases.Over(s.phases.End) {
				return nil
			}
			return explainSize(err, f.size)
		}
	}
	return nil
}

// give shares the datagrams from i to n to the kernel, as one UDP GSO batch where that works, and returns
// how many it took.
func (s *udpSource) give(f *udpFlow, i, n int) (int, error) {
	if f.gso.most < 2 {
		return s.batch.Send(f.sendFD(), i, n)
	}
	k := min(n-i, f.gso.most)
	err := s.batch.SendGSO(f.sendFD(), i, i+k)
	switch err {
	case nil:
		return k, nil
	case unix.EINVAL, unix.EIO, unix.EMSGSIZE:
		if f.gso.most > oldGSOSegments { // the limit of kernels before 6.9
			f.gso.most = oldGSOSegments
			return 0, nil
		}
		// This route cannot (no checksum offload, a policy, too small an MTU): one by one then.
		f.gso = gso{}
		unix.SetsockoptInt(f.sendFD(), unix.SOL_UDP, unix.UDP_SEGMENT, 0)
		return 0, nil
	}
	return 0, err
}

func (s *udpSource) sendEnd() error {
	// Some are sent however late this thread is.
	for round := 0; round < leastEnds || !s.phases.Over(s.phases.Senders); round++ {
		for _, f := range s.flows {
			if s.phases.Abandoned.Load() {
				return nil
			}
			s.fill(f, 1, uint64(f.sent))
			if n, err := s.batch.Send(f.sendFD(), 0, 1); err == nil {
				f.packets.Add(int64(n))
				f.bytes.Add(int64(n * f.sizes.of(uint64(f.sent))))
			}
		}
		traffic.SleepUntil(traffic.Monotonic()+int64(endInterval), &s.phases.Abandoned)
	}
	return nil
}
