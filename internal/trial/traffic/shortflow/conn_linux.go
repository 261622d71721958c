package shortflow

import (
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// streamEnd is one end of a stream in one direction. It counts the bytes of its flows.
type streamEnd struct {
	traffic.ByteFlow
	pattern  traffic.Pattern
	control  string // congestion control
	verified atomic.Int64
	corrupt  atomic.Int64
	over     *atomic.Bool // set at the end; shared by the whole endpoint
}

// Unblock makes the listener's threads return.
func (l *streamEnd) Unblock(how traffic.Urgency) {
	if how == traffic.AtOnce {
		l.over.Store(true)
	}
}

// Close does nothing.
func (l *streamEnd) Close() {}

// Report returns the counts, with the result of verification.
func (l *streamEnd) Report() traffic.FlowReport {
	r := l.ByteFlow.Report()
	r.Verified, r.Corrupt = l.verified.Load(), l.corrupt.Load()
	return r
}

// flowBuffers holds the buffers of one thread.
type flowBuffers struct {
	verify   bool
	send     []byte // data to send without verification
	nothing  []byte // buffer to receive without verification; never written to
	verified []byte
}

const (
	flowPiece = 256 << 10 // number of bytes per system call
	flowTurn  = 1 << 20   // number of bytes that a connection may move in its turn
)

func newFlowBuffers(q traffic.Request) *flowBuffers {
	b := &flowBuffers{verify: q.Load.Verify, send: make([]byte, flowPiece), nothing: make([]byte, flowPiece)}
	traffic.NewPattern(q.Load.Tag, 0).Fill(b.send, 0)
	if b.verify {
		b.verified = make([]byte, flowPiece)
	}

	return b
}

// flowConn is one end of a connection. It tracks which parts of the current message remain to be sent and
// received.
type flowConn struct {
	fd    int
	fresh bool // the connection has not yet sent its preamble
	gives *streamEnd
	takes *streamEnd

	number uint64
	out    []byte // rest of the header to send
	give   int64  // number of payload bytes to send after the header
	gave   int64
	in     []byte // buffer for the header to receive
	got    int
	take   int64 // number of payload bytes to receive after the header
	took   int64
	wrong  int64

	heads [2][traffic.PreambleSize + traffic.WelcomeSize + flowHeaderSize + answerSize]byte
}

// put returns the buffer for a header of n bytes to send.
func (c *flowConn) put(n int) []byte {
	c.out = c.heads[0][:n]
	return c.out
}

// expect prepares to receive a header of n bytes.
func (c *flowConn) expect(n int) {
	c.in = c.heads[1][:n]
	c.got = 0
}

// push sends as much as the kernel accepts, up to flowTurn bytes. more is true if it stopped at that
// limit.
func (c *flowConn) push(b *flowBuffers) (more bool, err error) {
	for moved := int64(0); len(c.out) > 0 || c.give > c.gave; {
		if moved >= flowTurn {
			return true, nil
		}

		n := 0
		if len(c.out) > 0 {
			flags := 0
			if c.give > c.gave {
				flags = unix.MSG_MORE
			}

			if n, err = sendFlow(c.fd, c.out, flags); err == nil {
				c.out = c.out[n:]
			}
		} else {
			piece := b.send[:min(c.give-c.gave, flowPiece)]
			if b.verify {
				piece = b.verified[:len(piece)]
				c.gives.pattern.Fill(piece, flowPosition(c.number)+uint64(c.gave))
			}

			if n, err = sendFlow(c.fd, piece, 0); err == nil {
				c.gave += int64(n)
				c.gives.Count.Add(int64(n))
			}
		}

		switch {
		case err == unix.EAGAIN:
			return false, nil
		case err != nil && err != unix.EINTR:
			return false, err
		}

		moved += int64(n)
	}
	return false, nil
}

// receive receives available data. If it returns 0 without an error, no data is available.
func (c *flowConn) receive(b []byte, flags int) (int, error) {
	for {
		n, err := traffic.Receive(c.fd, b, flags)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN:
			return 0, nil
		case err == nil && n == 0:
			return 0, io.EOF
		}
		return n, err
	}
}

// head receives into the buffer for the header, and reports whether the header is complete.
func (c *flowConn) head() (bool, error) {
	for c.got < len(c.in) {
		n, err := c.receive(c.in[c.got:], 0)
		if n == 0 {
			return false, err
		}

		c.got += n
	}
	return true, nil
}

// pull receives payload, up to flowTurn bytes. more is true if it stopped at that limit.
func (c *flowConn) pull(b *flowBuffers) (more bool, err error) {
	for moved := int64(0); c.take > c.took; {
		if moved >= flowTurn {
			return true, nil
		}

		room := b.nothing
		flags := unix.MSG_TRUNC
		if b.verify {
			room = b.verified
			flags = 0
		}

		room = room[:min(c.take-c.took, int64(len(room)))]
		n, err := c.receive(room, flags)
		if n == 0 {
			return false, err
		}

		if b.verify {
			wrong := c.takes.pattern.Mismatches(room[:n], flowPosition(c.number)+uint64(c.took))
			c.wrong += wrong
			c.takes.corrupt.Add(wrong)
			c.takes.verified.Add(int64(n) - wrong)
		}

		c.took += int64(n)
		c.takes.Count.Add(int64(n))
		moved += int64(n)
	}
	return false, nil
}

// noSlot is the slot in events that do not belong to a connection.
const noSlot = -1

// flowTable holds the connections of one thread by slot, and an epoll instance whose events contain the
// slot.
type flowTable[C any] struct {
	poll   int
	events []unix.EpollEvent
	slots  []tableSlot[C]
	free   []int32
	used   int
	again  []*C // connections that stopped at the limit of their turn
	spare  []*C // memory of closed connections; see room
}

type tableSlot[C any] struct {
	conn *C
	turn int32 // number of times that the slot was reused, to recognise events of earlier connections
}

func newFlowTable[C any]() (*flowTable[C], error) {
	poll, err := traffic.Watch(nil, 0)
	if err != nil {
		return nil, err
	}
	return &flowTable[C]{poll: poll, events: make([]unix.EpollEvent, 256)}, nil
}

// add adds a connection to the epoll instance, edge-triggered.
func (t *flowTable[C]) add(fd int, c *C) (int32, error) {
	slot := int32(len(t.slots))
	n := len(t.free)
	if n > 0 {
		slot = t.free[n-1]
		t.free = t.free[:n-1]
	} else {
		t.slots = append(t.slots, tableSlot[C]{})
	}

	s := &t.slots[slot]
	s.conn = c
	e := unix.EpollEvent{
		Events: unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLET&0xffffffff,
		Fd:     slot,
		Pad:    s.turn,
	}
	t.used++
	if err := unix.EpollCtl(t.poll, unix.EPOLL_CTL_ADD, fd, &e); err != nil {
		t.remove(slot)
		return noSlot, err
	}

	return slot, nil
}

// wait returns the connections that stopped at the limit of their turn, and the events that occur within
// the given time.
func (t *flowTable[C]) wait(within time.Duration) (again []*C, events []unix.EpollEvent, err error) {
	n, err := traffic.EpollWait(t.poll, t.events, within)
	if err != nil && err != unix.EINTR {
		return nil, nil, fmt.Errorf("wait for connections: %w", err)
	}

	again = t.again
	t.again = nil
	return again, t.events[:max(n, 0)], nil
}

// room returns memory for a connection. It reuses memory, because garbage collection would stop all
// threads until those in system calls have returned.
func (t *flowTable[C]) room() *C {
	n := len(t.spare)
	if n == 0 {
		return new(C)
	}

	c := t.spare[n-1]
	t.spare = t.spare[:n-1]
	return c
}

// remove removes a connection whose file descriptor was closed.
func (t *flowTable[C]) remove(slot int32) {
	s := &t.slots[slot]
	s.conn = nil
	s.turn++
	t.free = append(t.free, slot)
	t.used--
}

// of returns the connection to which an event belongs, or nil if the connection was closed.
func (t *flowTable[C]) of(e *unix.EpollEvent) *C {
	if e.Fd < 0 || int(e.Fd) >= len(t.slots) || t.slots[e.Fd].turn != e.Pad {
		return nil
	}
	return t.slots[e.Fd].conn
}
