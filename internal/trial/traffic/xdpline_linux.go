//go:build !mips && !mipsle

package traffic

import (
	"fmt"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/probe/bpf"
)

// A line takes frames for a device, by a socket. Frames are made in its slots and queued there; what is
// queued has left once the line gives the slot back. One thread uses it.
type line interface {
	// slot is one to fill, or nil while all are taken.
	slot() []byte
	// queue gives the slot back, filled.
	queue()
	// push gives the kernel what it takes now of what is queued.
	push() error
	// left is how many frames are queued, and how many of these and of those that the kernel has are not
	// yet out.
	left() (queued, out int)
	close() error
}

const (
	lineSlots = 1024 // a power of two
	lineBurst = 64   // frames between two looks at the clock
	// lineRoom is how much may be under way (the kernel doubles it): some 300 small frames, which a core's
	// backlog of 1000 has room for.
	lineRoom = 128 << 10

	ethernetHeader = 14
	ethernetLeast  = 60 // without the check sequence
)

// openLine opens a line of a kind. The slots hold frames as the writer begins them.
func openLine(way string, device int, w *bpf.Writer) (line, error) {
	if way == record.FramesAFXDP {
		r, err := openRing(device, w.Size())
		if err != nil {
			return nil, err
		}
		for i := range lineSlots {
			w.Begin(r.frame(i))
		}
		return r, nil
	}
	p, err := openPacket(device, w.Size())
	if err != nil {
		return nil, err
	}
	for i := range lineSlots {
		w.Begin(p.batch.at(i))
	}
	return p, nil
}

// lineSender is the thread that sends for all flows of an end by a line.
type lineSender struct {
	*xdpPort
	writer *bpf.Writer
	flows  []*xdpFlow // those that send
	pace   pace
	stamp  int // every how many frames have their time

	late  int64 // ns, that a burst began after its time
	last  int64 // when the cool-down ends
	phase int
	turn  int      // whose the next frame is
	until int      // frames before the next with its time
	seq   []uint32 // of each flow in this phase
}

func newLineSender(p *xdpPort, flows []*xdpFlow) *lineSender {
	payload := float64(flows[0].payload)
	return &lineSender{xdpPort: p, writer: bpf.NewWriter(p.load), flows: flows,
		seq:  make([]uint32, len(flows)),
		pace: newPace(p.load.PPS*8*payload, payload), stamp: bpf.StampEvery(p.load.PPS)}
}

func (s *lineSender) name() string { return "the sender of frames" }

func (s *lineSender) run(ph *phases) error {
	sleepUntil(ph.Begin, &ph.stop)
	now := monotonic()
	s.last = ph.senders
	if ph.slack > 0 {
		s.late = min(max(0, now-ph.Begin), ph.slack)
		s.last = ph.End + s.late // a burst has none
	}
	s.pace.begin(now)
	s.phase, s.turned[bpf.Warmup] = bpf.Warmup, now
	for !ph.stop.Load() && s.advance(ph, monotonic()) {
		if err := s.step(ph); err != nil {
			return err
		}
	}
	return s.settle(ph)
}

// advance moves to the phase that the time calls for; false at the end.
func (s *lineSender) advance(ph *phases, now int64) bool {
	phase := bpf.Warmup
	switch {
	case now >= s.last:
		phase = bpf.Cooldown + 1
	case now >= ph.End+s.late:
		phase = bpf.Cooldown
	case now >= ph.Start+s.late:
		phase = bpf.Window
	}
	if phase != s.phase {
		s.turned[phase], s.phase = now, phase
		clear(s.seq)
	}
	return phase <= bpf.Cooldown
}

// step makes the frames that are due, hands on what is queued, or sleeps.
func (s *lineSender) step(ph *phases) error {
	n, wake := s.pace.due(monotonic())
	made := 0
	if queued, _ := s.line.left(); queued < lineBurst {
		n = min(n, lineBurst)
	} else {
		n = 0 // that has to leave first
	}
	for ; made < n; made++ {
		b := s.line.slot()
		if b == nil {
			break
		}
		s.make(b)
		s.line.queue()
	}
	s.pace.took(made)
	for i := range min(made, len(s.flows)) { // whose turn it was
		f := s.flows[(s.turn-1-i+len(s.flows))%len(s.flows)]
		f.moved.Store(f.total)
	}
	before, _ := s.line.left()
	switch {
	case before > 0:
		if err := s.line.push(); err != nil {
			return fmt.Errorf("send frames by %s: %w", s.hop.Device, err)
		}
		if after, _ := s.line.left(); after == before {
			nap(lineNap)
		}
	case n == 0:
		sleepUntil(min(wake, s.edge(ph)), &ph.stop)
	case made == 0:
		nap(lineNap)
	}
	return nil
}

// lineNap is how long a full device is left alone.
const lineNap = 20 * time.Microsecond

// edge is when this phase ends.
func (s *lineSender) edge(ph *phases) int64 {
	return []int64{ph.Start + s.late, ph.End + s.late, s.last, s.last}[s.phase]
}

// make writes the next frame.
func (s *lineSender) make(b []byte) {
	stamp := int64(0)
	if s.until == 0 {
		s.until, stamp = s.stamp, monotonic()
	}
	s.until--
	i := s.turn
	if s.turn++; s.turn == len(s.flows) {
		s.turn = 0
	}
	s.writer.Put(b, i, s.phase, s.seq[i], stamp)
	s.seq[i]++
	s.flows[i].total++
	if s.phase == bpf.Window {
		s.flows[i].window++
	}
}

// settle waits until all that was queued is out: it was counted as sent.
func (s *lineSender) settle(ph *phases) error {
	for {
		queued, out := s.line.left()
		if out == 0 {
			return nil
		}
		if ph.stop.Load() || ph.over(ph.senders+int64(lineSettle)) {
			return fmt.Errorf("send frames by %s: %d of them did not leave within %v of the end",
				s.hop.Device, out, lineSettle)
		}
		if queued > 0 {
			if err := s.line.push(); err != nil {
				return fmt.Errorf("send frames by %s: %w", s.hop.Device, err)
			}
		}
		nap(lineNap)
	}
}

// lineSettle is how long after the senders' end frames may still leave.
const lineSettle = 200 * time.Millisecond
