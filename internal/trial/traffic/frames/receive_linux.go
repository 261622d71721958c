package frames

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/trial/probe/bpf"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// frameReader counts the frames of all flows of an end by the sockets that said hello for them, on one
// thread.
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
		if n := len(r.fds); n == 0 || r.fds[n-1] != f.fd { // at the listener all share one
			r.fds = append(r.fds, f.fd)
		}
	}
	for _, fd := range r.fds {
		traffic.UDPRoom(&traffic.Socket{FD: fd}, len(r.fds))
	}
	return r
}

func (*frameReader) Name() string { return "the receiver of frames" }

func (r *frameReader) Run(ph *traffic.Phases) error {
	poll, err := traffic.Watch(r.fds, unix.EPOLLIN)
	if err != nil {
		return err
	}
	defer unix.Close(poll)
	events := make([]unix.EpollEvent, min(len(r.fds), traffic.ReceiveBatch))
	// What has arrived by the end is read: the path did not lose it.
	last := ph.Senders
	for !ph.Over(ph.Stop + int64(traffic.BacklogTime)) {
		n, err := traffic.EpollWait(poll, events, 0)
		if err != nil && err != unix.EINTR {
			return fmt.Errorf("receive frames: %w", err)
		}
		for _, e := range events[:max(n, 0)] {
			if err := r.drain(r.fds[e.Fd]); err != nil {
				return fmt.Errorf("receive frames: %w", err)
			}
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

// drain takes one batch of a socket.
func (r *frameReader) drain(fd int) error {
	n, err := r.batch.Receive(fd)
	now := traffic.Monotonic()
	for i := range n {
		r.take(i, now)
	}
	if err == nil || traffic.Again(err) || err == unix.ECONNREFUSED {
		return nil
	}
	return err
}

// take enters one datagram. The window's edges are precise to the poll.
func (r *frameReader) take(i int, now int64) {
	b := r.batch.At(i)
	d, ok := bpf.ReadDatagram(b[:min(len(b), r.batch.Length(i))], r.tag)
	if !ok || d.Flow >= len(r.flows) {
		if r.batch.Length(i) != traffic.DatagramHeader { // one that came again
			r.flows[0].wrong++ // a stray; whose it was meant to be is not known
		}
		return
	}
	f := r.flows[d.Flow]
	if r.batch.Length(i) != f.payload {
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
	f.sequence.See32(d.Seq)
}
