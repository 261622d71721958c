package frames

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/probe/bpf"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

const (
	txSlots = 1024 // number of frames in the transmit queue
	txBurst = 64   // number of frames between two readings of the clock
	// txRoom limits the number of bytes in flight; the kernel doubles it. It is enough for about 300 small
	// frames. They fit into the backlog of a core, which has room for 1000.
	txRoom = 128 << 10
)

// txSender is a thread that sends the frames of all flows of an endpoint through a socket.
type txSender struct {
	*xdpPort
	writer *bpf.Writer
	flows  []*xdpFlow // flows to send
	pace   traffic.Pace
	stamp  int // number of frames from one time stamp to the next

	late  int64 // delay of a burst's start, in ns
	last  int64 // end of the cool-down
	phase int
	turn  int      // index of the flow of the next frame
	until int      // number of frames until the next time stamp
	seq   []uint32 // number of the next frame in this phase, by flow
}

func newTxSender(p *xdpPort, flows []*xdpFlow) *txSender {
	payload := flows[0].mean
	_, stamped := bpf.BurstOf(p.load.PPS)
	return &txSender{
		xdpPort: p,
		writer:  bpf.NewWriter(p.load),
		flows:   flows,
		seq:     make([]uint32, len(flows)),
		pace:    traffic.NewPace(p.load.PPS*8*payload, payload),
		stamp:   stamped,
	}
}

func (s *txSender) Name() string { return "the sender of frames" }

func (s *txSender) Run(ph *traffic.Phases) error {
	traffic.SleepUntil(ph.Begin, &ph.Abandoned)
	now := traffic.Monotonic()
	s.last = ph.Senders
	if ph.Slack > 0 {
		s.late = min(max(0, now-ph.Begin), ph.Slack)
		s.last = ph.End + s.late // because a burst has no cool-down
	}

	s.pace.Begin(now)
	s.phase, s.began[bpf.Warmup] = bpf.Warmup, now
	for !ph.Abandoned.Load() && s.advance(ph, traffic.Monotonic()) {
		if err := s.step(ph); err != nil {
			return err
		}
	}

	return s.settle(ph)
}

// advance enters the phase of the current time. It returns false after the last phase.
func (s *txSender) advance(ph *traffic.Phases, now int64) bool {
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
		s.began[phase], s.phase = now, phase
		clear(s.seq)
	}

	return phase <= bpf.Cooldown
}

// step builds the frames that are due and sends queued frames, or sleeps.
func (s *txSender) step(ph *traffic.Phases) error {
	n, wake := s.pace.Due(traffic.Monotonic())
	made := 0
	if s.tx.queued() < txBurst {
		n = min(n, txBurst)
	} else {
		n = 0 // because queued frames must leave first
	}

	for ; made < n; made++ {
		b := s.tx.slot()
		if b == nil {
			break
		}

		s.tx.queue(s.make(b))
	}

	s.pace.Took(made)
	for i := range min(made, len(s.flows)) { // publish the count of each flow that sent frames
		f := s.flows[(s.turn-1-i+len(s.flows))%len(s.flows)]
		f.moved.Store(f.total)
	}

	before := s.tx.queued()
	switch {
	case before > 0:
		if err := s.tx.push(); err != nil {
			return fmt.Errorf("send frames by %s: %w", s.hop.Device, err)
		}

		if s.tx.queued() == before {
			traffic.Nap(txNap)
		}
	case n == 0:
		traffic.SleepUntil(min(wake, s.edge(ph)), &ph.Abandoned)
	case made == 0:
		traffic.Nap(txNap)
	}

	return nil
}

// txNap is the pause before another attempt to send while the device's queue is full.
const txNap = 20 * time.Microsecond

// edge returns the time at which the current phase ends.
func (s *txSender) edge(ph *traffic.Phases) int64 {
	return []int64{ph.Start + s.late, ph.End + s.late, s.last, s.last}[s.phase]
}

// make builds the next frame and returns its length.
func (s *txSender) make(b []byte) int {
	var stamp int64
	if s.until == 0 {
		s.until, stamp = s.stamp, traffic.Monotonic()
	}

	s.until--
	i := s.turn
	if s.turn++; s.turn == len(s.flows) {
		s.turn = 0
	}

	length := s.writer.Put(b, i, s.phase, s.seq[i], stamp)
	s.seq[i]++
	s.flows[i].total++
	if s.phase == bpf.Window {
		s.flows[i].window++
	}

	return length
}

// settle waits until all queued frames have left, because they have already been counted as sent.
func (s *txSender) settle(ph *traffic.Phases) error {
	for s.tx.queued() > 0 {
		if ph.Abandoned.Load() || ph.Over(ph.Senders+int64(txSettle)) {
			return fmt.Errorf("send frames by %s: %d of them did not leave within %v of the end",
				s.hop.Device, s.tx.queued(), txSettle)
		}

		if err := s.tx.push(); err != nil {
			return fmt.Errorf("send frames by %s: %w", s.hop.Device, err)
		}

		traffic.Nap(txNap)
	}
	return nil
}

// txSettle limits the time after the end of sending in which frames may still leave.
const txSettle = 200 * time.Millisecond

// packetSocket sends frames through AF_PACKET, many per call, bypassing the qdisc (packet(7)). The frames are
// built in the slots of the socket. A frame that the device rejects stays queued and is sent later. Only one
// thread may use a packetSocket.
type packetSocket struct {
	traffic.Socket
	batch      *traffic.Batch
	head, tail int // indexes of the queued slots in the batch
}

// openPacket opens a socket for a device. It fills the slots with the parts that all of the writer's
// frames have in common.
func openPacket(device int, w *bpf.Writer) (*packetSocket, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open a socket of AF_PACKET: %w", err)
	}

	p := &packetSocket{Socket: traffic.Socket{FD: fd}, batch: traffic.NewBatch(txSlots, w.Size(), 0)}
	if err := p.open(device); err != nil {
		p.Close()
		return nil, err
	}

	for i := range txSlots {
		w.Begin(p.batch.At(i))
	}

	return p, nil
}

func (p *packetSocket) open(device int) error {
	if err := unix.SetsockoptInt(p.FD, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1); err != nil {
		return fmt.Errorf("pass the queueing discipline by AF_PACKET: %w", err)
	}

	if err := unix.SetsockoptInt(p.FD, unix.SOL_SOCKET, unix.SO_SNDBUF, txRoom); err != nil {
		return fmt.Errorf("limit the bytes in flight of AF_PACKET: %w", err)
	}

	if err := traffic.Bound(p.FD); err != nil {
		return fmt.Errorf("set the timeouts of AF_PACKET: %w", err)
	}

	// Protocol 0 means that the socket receives nothing.
	if err := unix.Bind(p.FD, &unix.SockaddrLinklayer{Ifindex: device}); err != nil {
		return fmt.Errorf("bind AF_PACKET to device %d: %w", device, err)
	}

	return nil
}

// slot returns the next slot to fill, or nil if all slots are in use.
func (p *packetSocket) slot() []byte {
	if p.tail == txSlots {
		return nil
	}
	return p.batch.At(p.tail)
}

// queue adds a frame to the queue: the first length bytes of the current slot.
func (p *packetSocket) queue(length int) {
	p.batch.Size(p.tail, length)
	p.tail++
}

// push passes as many queued frames to the kernel as it accepts now.
func (p *packetSocket) push() error {
	n, err := p.batch.Send(p.FD, p.head, p.tail)
	if p.head += n; p.head == p.tail {
		p.head, p.tail = 0, 0
	}

	if err == nil || traffic.Again(err) || errors.Is(err, unix.ENOBUFS) {
		return nil
	}

	return err
}

// queued returns the number of frames that the kernel has not yet accepted.
func (p *packetSocket) queued() int { return p.tail - p.head }

// frameReader counts the frames of all flows of an endpoint on one thread. It reads from the sockets that
// exchanged the hellos.
type frameReader struct {
	flows []*xdpFlow // by index
	fds   []int
	batch *traffic.Batch
	tag   uint32
}

func newFrameReader(flows []*xdpFlow, tag uint32) *frameReader {
	r := &frameReader{flows: flows, tag: tag, batch: traffic.NewBatch(traffic.ReceiveBatch, bpf.Header, 0)}
	for _, f := range flows {
		f.sequence = traffic.NewSequence(traffic.MemoryOf(len(flows)))
		n := len(r.fds)
		if n == 0 || r.fds[n-1] != f.socket.FD { // because the flows of a listener share a socket
			r.fds = append(r.fds, f.socket.FD)
		}
	}

	for _, fd := range r.fds {
		traffic.UDPRoom(&traffic.Socket{FD: fd}, len(r.fds))
	}

	return r
}

func (*frameReader) Name() string { return "the receiver of frames" }

func (r *frameReader) Run(ph *traffic.Phases) error {
	sockets, err := traffic.NewReceiver(r.fds, r.batch)
	if err != nil {
		return err
	}
	defer sockets.Close()
	enter := r.enter
	// Read everything that has arrived by the end, because the path has not lost it.
	last := ph.Senders
	for !ph.Over(ph.Stop + int64(traffic.BacklogTime)) {
		n, _, err := sockets.Look(enter)
		if err != nil {
			return fmt.Errorf("receive frames: %w", err)
		}

		if n > 0 {
			last = max(last, traffic.Monotonic())
			continue
		}

		if ph.Over(min(ph.Stop, last+int64(xdpDrain))) {
			return nil
		}

		traffic.Nap(traffic.ReceivePoll)
	}

	return nil
}

// enter counts the first n frames of the batch.
func (r *frameReader) enter(n int) {
	now := traffic.Monotonic()
	for i := range n {
		r.take(i, now)
	}
}

// take counts one datagram. The start and the end of the window are as precise as the polling interval.
func (r *frameReader) take(i int, now int64) {
	b := r.batch.At(i)
	d, ok := bpf.ReadDatagram(b[:min(len(b), r.batch.Length(i))], r.tag)
	if !ok || d.Flow >= len(r.flows) {
		if r.batch.Length(i) != traffic.DatagramHeader { // the datagram is a repeated hello
			r.flows[0].wrong++ // the frame is of an unknown flow
		}
		return
	}

	f := r.flows[d.Flow]
	if r.batch.Length(i) != f.sizes.Of(uint64(d.Seq)) {
		f.wrong++
		return
	}

	f.moved.Add(1)
	if d.Phase != bpf.Window {
		return
	}

	if f.from == 0 {
		f.from = now
	}

	f.till = now
	before := f.sequence.Received
	if f.sequence.See32(d.Seq); f.sequence.Received > before {
		f.bytes += int64(f.sizes.Of(uint64(d.Seq)))
	}
}
