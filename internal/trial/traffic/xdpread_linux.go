//go:build !mips && !mipsle

package traffic

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/trial/probe/bpf"
)

// frameReader counts the frames of all flows of an end by the sockets that greeted for them, on one thread.
type frameReader struct {
	flows []*xdpFlow // by index
	fds   []int
	batch *batch
	tag   uint32
}

func newFrameReader(flows []*xdpFlow, tag uint32) *frameReader {
	r := &frameReader{flows: flows, tag: tag, batch: newBatch(receiveBatch, bpf.Header, 0)}
	for _, f := range flows {
		f.sequence = newSequence(memoryOf(len(flows)))
		if n := len(r.fds); n == 0 || r.fds[n-1] != f.fd { // at the listener all share one
			r.fds = append(r.fds, f.fd)
		}
	}
	for _, fd := range r.fds {
		udpRoom(&socket{fd: fd}, len(r.fds))
	}
	return r
}

func (*frameReader) name() string { return "the receiver of frames" }

func (r *frameReader) run(ph *phases) error {
	poll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return fmt.Errorf("open an epoll: %w", err)
	}
	defer unix.Close(poll)
	for i, fd := range r.fds {
		e := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(i)}
		if err := unix.EpollCtl(poll, unix.EPOLL_CTL_ADD, fd, &e); err != nil {
			return fmt.Errorf("watch the socket of a flow: %w", err)
		}
	}
	events := make([]unix.EpollEvent, min(len(r.fds), receiveBatch))
	// What has arrived by the end is read: the path did not lose it.
	last := ph.senders
	for !ph.over(ph.Stop + int64(backlogTime)) {
		n, err := epollWait(poll, events, 0)
		if err != nil && err != unix.EINTR {
			return fmt.Errorf("receive frames: %w", err)
		}
		for _, e := range events[:max(n, 0)] {
			if err := r.drain(r.fds[e.Fd]); err != nil {
				return fmt.Errorf("receive frames: %w", err)
			}
		}
		if n > 0 {
			last = max(last, monotonic())
			continue
		}
		if ph.over(min(ph.Stop, last+int64(xdpDrain))) {
			return nil
		}
		nap(receivePoll)
	}
	return nil
}

// drain takes one batch of a socket.
func (r *frameReader) drain(fd int) error {
	n, err := r.batch.receive(fd)
	now := monotonic()
	for i := range n {
		r.take(i, now)
	}
	if err == nil || again(err) || err == unix.ECONNREFUSED {
		return nil
	}
	return err
}

// take enters one datagram. The window's edges are precise to the poll.
func (r *frameReader) take(i int, now int64) {
	b := r.batch.at(i)
	d, ok := bpf.ReadDatagram(b[:min(len(b), r.batch.length(i))], r.tag)
	if !ok || d.Flow >= len(r.flows) {
		if r.batch.length(i) != helloSize { // one that came again
			r.flows[0].wrong++ // a stray; whose it was meant to be is not known
		}
		return
	}
	f := r.flows[d.Flow]
	if r.batch.length(i) != f.payload {
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
	f.sequence.see32(d.Seq)
}
