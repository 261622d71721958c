package shortflow

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// serverConn is the listener's end of a connection.
type serverConn struct {
	flowConn
	slot    int32
	giving  bool // the answer is being sent
	again   bool
	pending bool // no preamble has arrived yet
}

// server holds the state of one thread at the listener.
type server struct {
	streams   []*streamEnd
	listeners []int // sockets from which all threads accept
	kept      []keptConn
	buffers   *flowBuffers
	first     []byte // preamble of stream 0
	welcome   []byte
	several   bool // streams have different congestion controls

	table   *flowTable[serverConn]
	pending []pendingRef // accepted connections in order of arrival; some may be identified already
	swept   int64
}

// pendingRef refers to an accepted connection by its slot and the number of times that the slot was reused.
type pendingRef struct {
	slot, turn int32
	since      int64
}

// keptConn is a connection for requests that was identified before the load.
type keptConn struct {
	fd           int
	gives, takes *streamEnd
}

func (a *server) Name() string { return "the thread that answers flows" }

func (a *server) Run(p *traffic.Phases) error {
	var err error
	if a.table, err = newFlowTable[serverConn](); err != nil {
		return err
	}
	defer closeFlow(a.table.poll)
	for i, listener := range a.listeners {
		// EPOLLEXCLUSIVE wakes only one of the waiting threads for a connection.
		e := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLEXCLUSIVE, Fd: noSlot, Pad: int32(i)}
		if err := unix.EpollCtl(a.table.poll, unix.EPOLL_CTL_ADD, listener, &e); err != nil {
			return fmt.Errorf("watch for connections: %w", err)
		}
	}

	for _, k := range a.kept {
		c := &serverConn{flowConn: flowConn{fd: k.fd, gives: k.gives, takes: k.takes}}
		c.expect(flowHeaderSize)
		if c.slot, err = a.table.add(k.fd, c); err != nil {
			return fmt.Errorf("watch stream %d: %w", k.gives.Key.Stream, err)
		}
	}
	defer a.leave()
	over := a.streams[0].over
	for !p.Abandoned.Load() && !over.Load() {
		if err := a.round(p); err != nil {
			return err
		}
	}

	return nil
}

func (a *server) round(p *traffic.Phases) error {
	wait := traffic.CallTimeout
	if len(a.table.again) > 0 {
		wait = 0
	}

	again, events, err := a.table.wait(wait)
	if err != nil {
		return err
	}

	for _, c := range again {
		c.again = false
		if err := a.serve(p, c); err != nil {
			return err
		}
	}

	for i := range events {
		e := &events[i]
		if e.Fd == noSlot {
			a.admit(a.listeners[e.Pad])
			continue
		}

		c := a.table.of(e)
		if c != nil {
			if err := a.serve(p, c); err != nil {
				return err
			}
		}
	}

	a.sweep()
	return nil
}

// maxAdmitted is the maximum number of connections to accept before other connections have their turn.
const maxAdmitted = 64

func (a *server) admit(listener int) {
	for range maxAdmitted {
		fd, err := acceptFlow(listener)
		if err != nil {
			if err == unix.EMFILE || err == unix.ENFILE {
				traffic.Nap(time.Millisecond) // wait until a descriptor is closed
			}
			return
		}

		c := a.table.room()
		*c = serverConn{flowConn: flowConn{fd: fd, fresh: true}, pending: true}
		c.expect(traffic.PreambleSize + flowHeaderSize)
		if c.slot, err = a.table.add(fd, c); err != nil {
			abortFlow(fd)
			continue
		}

		a.pending = append(a.pending, pendingRef{c.slot, a.table.slots[c.slot].turn, traffic.Monotonic()})
	}
}

// sweepEvery is the minimum time between two sweeps, in ns.
const sweepEvery = int64(50 * time.Millisecond)

// sweep closes connections that have not sent their preamble in time. If too many connections are waiting,
// it also closes the oldest ones.
func (a *server) sweep() {
	now := traffic.Monotonic()
	if now < a.swept+sweepEvery && len(a.pending) < 2*maxOpenFlows {
		return
	}

	a.swept = now
	still := a.pending[:0]
	for _, s := range a.pending {
		if a.pendingConn(s) != nil {
			still = append(still, s)
		}
	}

	a.pending = still
	tooMany := len(still) - maxOpenFlows - traffic.MaxPending
	gone := 0
	for i, s := range still {
		if now-s.since <= int64(traffic.PreambleTimeout) && i >= tooMany {
			break
		}

		a.dismiss(a.pendingConn(s))
		gone++
	}

	a.pending = still[:copy(still, still[gone:])]
}

// pendingConn returns the connection that s refers to if it has not sent a preamble, otherwise nil.
func (a *server) pendingConn(s pendingRef) *serverConn {
	at := a.table.slots[s.slot]
	if at.turn == s.turn && at.conn != nil && at.conn.pending {
		return at.conn
	}
	return nil
}

func (a *server) dismiss(c *serverConn) {
	if len(a.kept) == 0 {
		abortFlow(c.fd)
	} else { // the descriptor is closed at the end of the load
		unix.EpollCtl(a.table.poll, unix.EPOLL_CTL_DEL, c.fd, &unix.EpollEvent{})
	}

	a.forget(c)
}

func (a *server) forget(c *serverConn) {
	a.table.remove(c.slot)
	c.fd, c.pending = -1, false
	a.table.spare = append(a.table.spare, c)
}

// serve moves as much data on a connection as possible. If the connection ends, the opener counts a failed
// flow. serve returns an error only if the connection should have stayed open.
func (a *server) serve(p *traffic.Phases, c *serverConn) error {
	if c.again || c.fd < 0 {
		return nil
	}

	more, err := a.move(c)
	switch {
	case err != nil && len(a.kept) > 0 && !p.Over(p.End):
		return fmt.Errorf("stream %d: %s", c.gives.Key.Stream, failureWords(err))
	case err != nil:
		a.dismiss(c)
	case more:
		c.again = true
		a.table.again = append(a.table.again, c)
	}

	return nil
}

// errNotOurs means that a connection does not belong to this load.
var errNotOurs = errors.New("not of this load")

func (a *server) move(c *serverConn) (more bool, err error) {
	for {
		if !c.giving {
			if c.got < len(c.in) {
				full, err := c.head()
				if err != nil || !full {
					return false, err
				}

				if err := a.heard(c); err != nil {
					return false, err
				}
			}

			more, err := c.pull(a.buffers)
			if err != nil || more || c.took < c.take {
				return more, err
			}

			a.answer(c)
		}

		more, err := c.push(a.buffers)
		if err != nil || more || len(c.out) > 0 || c.gave < c.give {
			return more, err
		}

		if len(a.kept) == 0 {
			closeFlow(c.fd)
			a.forget(c)
			return false, nil
		}

		c.giving = false
		c.expect(flowHeaderSize)
	}
}

// heard parses the request. On a new connection, it also identifies the stream.
func (a *server) heard(c *serverConn) error {
	b := c.in
	if c.fresh {
		i, known := traffic.ReadPreamble(b[:traffic.PreambleSize], a.first, len(a.streams))
		if !known {
			return errNotOurs
		}

		b = b[traffic.PreambleSize:]
		l := a.streams[i]
		c.pending = false
		if l.Sends {
			c.gives = l
		} else {
			c.takes = l
		}

		if a.several {
			unix.SetsockoptString(c.fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, l.control)
		}
	}

	q, ok := readFlowHeader(b)
	if !ok || q.gives > 0 && c.takes == nil || q.wants > 0 && c.gives == nil {
		return errNotOurs
	}

	c.number, c.give, c.gave, c.take, c.took, c.wrong = q.number, int64(q.wants), 0, int64(q.gives), 0, 0
	return nil
}

// answer queues the header of the answer, which precedes the payload.
func (a *server) answer(c *serverConn) {
	c.giving = true
	b := c.put(traffic.WelcomeSize + answerSize)
	if !c.fresh {
		b = c.put(answerSize)
	} else {
		copy(b, a.welcome)
		b = b[traffic.WelcomeSize:]
	}

	putAnswer(b, uint64(c.took), uint64(c.wrong))
}

// leave closes unfinished connections.
func (a *server) leave() {
	for i := range a.table.slots {
		c := a.table.slots[i].conn
		if c != nil && len(a.kept) == 0 {
			abortFlow(c.fd)
		}
	}
}
