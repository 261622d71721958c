package traffic

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

const (
	sendBatch = 64
	// farewells are sent at this interval after the window: they tell the
	// receiver how many packets there were.
	farewell       = 2 * time.Millisecond
	leastFarewells = 5
)

// sender is the state of one flow's sending thread.
type sender struct {
	*udpFlow
	phases *phases
	batch  *batch
	phase  phase
	seq    uint64 // of the next datagram in this phase
}

// send offers load from Begin to End, then bids farewell until the senders'
// stop.
func (f *udpFlow) send(p *phases) error {
	s := &sender{udpFlow: f, phases: p, batch: newBatch(sendBatch, f.payload), phase: phaseWarmup}
	for i := range sendBatch {
		f.pattern.fill(s.batch.at(i), 0)
		datagram{tag: f.tag, flow: f.index}.put(s.batch.at(i))
	}
	sleepUntil(p.Begin, &p.stop)
	f.pace.begin(monotonic())
	for !p.stop.Load() && s.phase != phaseCooldown {
		now := monotonic()
		s.turn(now)
		n, wake := f.pace.due(now)
		switch {
		case s.phase == phaseCooldown:
		case n == 0:
			sleepUntil(min(wake, s.nextTurn()), &p.stop)
		default:
			if err := s.emit(min(n, sendBatch)); err != nil {
				return err
			}
		}
	}
	return s.sayFarewell()
}

// turn moves to the phase that the time calls for.
func (s *sender) turn(now int64) {
	if s.phase == phaseWarmup && now >= s.phases.Start {
		s.phase, s.seq, s.from = phaseWindow, 0, now
	}
	if s.phase == phaseWindow && now >= s.phases.End {
		s.phase, s.sent, s.to = phaseCooldown, int64(s.seq), now
	}
}

func (s *sender) nextTurn() int64 {
	if s.phase == phaseWarmup {
		return s.phases.Start
	}
	return s.phases.End
}

// emit sends n datagrams of the present phase; those that the kernel did not
// take are not counted.
func (s *sender) emit(n int) error {
	for i := range n {
		b := s.batch.at(i)
		putSequence(b, s.phase, s.seq+uint64(i))
		if s.verify {
			s.pattern.fill(b[datagramHeader:], datagramPosition(s.phase, s.seq+uint64(i)))
		}
	}
	for i := 0; i < n && !s.phases.stop.Load(); {
		k, err := s.give(i, n)
		s.seq += uint64(k)
		s.packets.Add(int64(k))
		s.pace.took(k)
		i += k
		switch err {
		case nil, unix.EINTR:
		case unix.EAGAIN, unix.ENOBUFS:
			// The buffer or the queue is full: the rest waits for the next
			// look at the clock.
			if err == unix.ENOBUFS {
				nap(50 * time.Microsecond)
			}
			return nil
		default:
			if s.phases.over(s.phases.End) {
				return nil
			}
			return s.explain(err)
		}
	}
	return nil
}

// give hands the datagrams from i to n to the kernel, as a train where that
// works, and returns how many it took.
func (s *sender) give(i, n int) (int, error) {
	if s.train < 2 {
		return s.batch.send(s.fd, i, n)
	}
	k := min(n-i, s.train)
	_, err := unix.Write(s.fd, s.batch.buffer[i*s.batch.room:(i+k)*s.batch.room])
	switch err {
	case nil:
		return k, nil
	case unix.EINVAL, unix.EIO, unix.EMSGSIZE:
		// This route cannot (no checksum offload, a policy, too small an
		// MTU): one by one then.
		s.train = 0
		unix.SetsockoptInt(s.fd, unix.SOL_UDP, unix.UDP_SEGMENT, 0)
		return 0, nil
	}
	return 0, err
}

func (s *sender) explain(err error) error {
	if err == unix.EMSGSIZE {
		return &tooBigError{size: s.size}
	}
	return fmt.Errorf("send %d-byte packets: %w", s.size, err)
}

// tooBigError is a packet that the path would have to fragment.
type tooBigError struct{ size int }

func (e *tooBigError) Error() string {
	return fmt.Sprintf("send %d-byte packets: larger than the path's MTU", e.size)
}

// Hint says what to change.
func (e *tooBigError) Hint() string { return "choose a smaller packet_size or a larger mtu" }

func (s *sender) sayFarewell() error {
	b := s.batch.at(0)
	putSequence(b, phaseCooldown, uint64(s.sent))
	if s.verify {
		s.pattern.fill(b[datagramHeader:], datagramPosition(phaseCooldown, uint64(s.sent)))
	}
	// Some are sent however late this thread is.
	for sent := 0; sent < leastFarewells || !s.phases.over(s.phases.senders); sent++ {
		if s.phases.stop.Load() {
			return nil
		}
		if n, err := s.batch.send(s.fd, 0, 1); err == nil {
			s.packets.Add(int64(n))
		}
		sleepUntil(monotonic()+int64(farewell), &s.phases.stop)
	}
	return nil
}
