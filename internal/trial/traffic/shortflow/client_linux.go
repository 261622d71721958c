package shortflow

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// failurePause is the pause in ns after a flow of a stream has failed. Without it, flows that are refused
// immediately would cause a flood.
const failurePause = int64(10 * time.Millisecond)

// clientStream is the opener's end of a stream.
type clientStream struct {
	preamble []byte
	gives    *streamEnd
	takes    *streamEnd
	dial     *dialer
	kept     *clientConn // connection that stays open for further requests
}

// clientConn is the opener's end of a flow in progress.
type clientConn struct {
	flowConn
	stream   *clientStream
	slot     int32
	intended int64
	called   int64 // time of the connect call
	size     int64
	state    clientState
	again    bool // queued to be handled once more by the table
}

type clientState int

const (
	stateIdle clientState = iota // connection stays open, between requests
	stateConnecting
	stateHead // waiting for the header of the answer
	statePayload
	stateLeaving // flow complete, waiting for the listener to close
)

// client holds the state of one thread at the opener.
type client struct {
	request traffic.Request
	streams []*clientStream
	sizes   FlowSizes // sizes of flows
	kept    bool
	open    int // maximum number of open connections
	buffers *flowBuffers
	welcome []byte
	rng     *rand.Rand
	tally   *flowTally

	table  *flowTable[clientConn]
	alarm  *alarm
	idle   []idleStream  // streams without a flow; unused if flows start at a rate
	due    *flowArrivals // schedule of flows that start at a rate, or nil
	turn   int
	number uint64
	err    error // error of a connection that should have stayed open
}

type idleStream struct {
	stream *clientStream
	from   int64
}

func (a *client) Name() string { return "the thread that opens flows" }

func (a *client) Run(p *traffic.Phases) error {
	a.tally = newFlowTally(p.Window)
	var err error
	if a.table, err = newFlowTable[clientConn](); err != nil {
		return err
	}
	defer closeFlow(a.table.poll)
	if a.alarm, err = newAlarm(a.table.poll); err != nil {
		return fmt.Errorf("open a timer: %w", err)
	}
	defer closeFlow(a.alarm.fd)
	if a.due != nil {
		a.due.begin(p.Begin)
	} else {
		for _, s := range a.streams {
			a.idle = append(a.idle, idleStream{s, p.Begin})
		}
	}

	for _, s := range a.streams {
		if s.kept == nil {
			continue
		}

		if s.kept.slot, err = a.table.add(s.kept.fd, s.kept); err != nil {
			return fmt.Errorf("watch stream %d: %w", s.gives.Key.Stream, err)
		}
	}

	traffic.SleepUntil(p.Begin, &p.Abandoned)
	for !p.Over(p.Senders) && a.err == nil {
		if err := a.round(p); err != nil {
			return err
		}
	}

	a.leave(p)
	return a.err
}

// round starts the flows that are due and serves the connections that are ready.
func (a *client) round(p *traffic.Phases) error {
	next := a.launch(p)
	wait := traffic.CallTimeout
	switch {
	case len(a.table.again) > 0 || next <= traffic.Monotonic():
		wait = 0
	case next < traffic.Monotonic()+int64(traffic.CallTimeout):
		a.alarm.set(next)
	}

	again, events, err := a.table.wait(wait)
	if err != nil {
		return err
	}

	for _, c := range again {
		c.again = false
		a.serve(c)
	}

	for i := range events {
		c := a.table.of(&events[i])
		if c != nil {
			a.serve(c)
		}
	}

	return nil
}

// never is a time that is later than all others, in ns.
const never = int64(1<<63 - 1)

// launch starts the flows that are due, and returns the time of the next one.
func (a *client) launch(p *traffic.Phases) (next int64) {
	now := traffic.Monotonic()
	if now >= p.End {
		return never
	}

	if a.due != nil {
		for n := 0; n < maxAdmitted && a.due.next <= now && a.due.next < p.End &&
			a.table.used < a.open; n++ {
			a.begin(a.streams[a.turn%len(a.streams)], a.due.next, now)
			a.turn++
			a.due.advance()
			now = traffic.Monotonic()
		}

		if a.table.used >= a.open {
			return never
		}
		return a.due.next
	}

	next = never
	waiting := a.idle[:0]
	ready := a.idle
	a.idle = nil
	for _, s := range ready {
		if s.from > now {
			waiting, next = append(waiting, s), min(next, s.from)
			continue
		}

		a.begin(s.stream, now, now)
		now = traffic.Monotonic()
	}

	// Flows that failed immediately were added to a.idle meanwhile.
	a.idle = append(waiting, a.idle...)
	if len(a.idle) > len(waiting) {
		next = min(next, now+failurePause)
	}

	return next
}

// begin starts a flow.
func (a *client) begin(s *clientStream, intended, now int64) {
	c := a.fresh(s)
	c.stream = s
	c.intended = intended
	c.called = now
	c.number = a.number
	c.gives = s.gives
	c.takes = s.takes
	c.give, c.take = a.sizesOf(s)
	c.size = c.give + c.take
	a.number++
	a.tally.begin(intended, c.size)
	a.tally.launch(intended, now)
	q := flowHeader{c.number, uint64(c.give), uint64(c.take)}
	if a.kept {
		q.put(c.put(flowHeaderSize))
		c.expect(answerSize)
		c.state = stateHead
		a.serve(c)
		return
	}

	copy(c.put(traffic.PreambleSize+flowHeaderSize), s.preamble)
	q.put(c.out[traffic.PreambleSize:])
	c.expect(traffic.WelcomeSize + answerSize)
	c.state = stateConnecting
	var err error
	if c.fd, err = s.dial.dial(); err == nil {
		c.slot, err = a.table.add(c.fd, c)
	}

	if err != nil {
		a.failed(c, err)
	}
}

// sizesOf returns the number of bytes to send and to receive in a stream's next flow.
func (a *client) sizesOf(s *clientStream) (gives, takes int64) {
	switch {
	case a.kept:
		return MessageSizes(a.request.Load)
	case s.gives != nil:
		return a.sizes.draw(a.rng), 0
	}
	return 0, a.sizes.draw(a.rng)
}

// fresh returns a connection in its initial state.
func (a *client) fresh(s *clientStream) *clientConn {
	if c := s.kept; c != nil {
		*c = clientConn{flowConn: flowConn{fd: c.fd}, slot: c.slot}
		return c
	}

	c := a.table.room()
	*c = clientConn{flowConn: flowConn{fd: -1}, slot: noSlot}
	return c
}

// serve moves as much data on a connection as possible.
func (a *client) serve(c *clientConn) {
	if c.again || c.fd < 0 || c.state == stateIdle {
		return
	}

	more, err := a.move(c)
	switch {
	case err != nil:
		a.failed(c, err)
	case more:
		c.again = true
		a.table.again = append(a.table.again, c)
	}
}

// errAnswer means that an answer is wrong or not from our listener.
var errAnswer = errors.New("wrong answer")

func (a *client) move(c *clientConn) (more bool, err error) {
	if c.state == stateConnecting {
		if err := pendingError(c.fd); err != nil {
			return false, err
		}

		now := traffic.Monotonic()
		a.tally.connected(c.intended, now, now-c.called)
		c.state = stateHead
	}

	if more, err = c.push(a.buffers); err != nil {
		return false, err
	}

	if c.state == stateHead {
		full, err := c.head()
		if err != nil || !full {
			return more, err
		}

		if err := a.answered(c); err != nil {
			return false, err
		}

		c.state = statePayload
	}

	if c.state == statePayload {
		rest, err := c.pull(a.buffers)
		if err != nil || rest || c.took < c.take {
			return more || rest, err
		}

		a.tally.complete(c.intended, traffic.Monotonic(), c.size, c.gave+c.took)
		c.state = stateLeaving
	}

	return false, a.awaitClose(c)
}

// answered checks the header of the answer.
func (a *client) answered(c *clientConn) error {
	b := c.in
	if !a.kept {
		var ours bool
		if b, ours = bytes.CutPrefix(b, a.welcome); !ours {
			return errAnswer
		}
	}

	if readAnswer(b) != uint64(c.give) || c.gave != c.give {
		return errAnswer
	}

	return nil
}

// awaitClose waits until the listener has closed the connection. The listener then keeps the connection in
// TIME_WAIT, and the opener's local port is free at once.
func (a *client) awaitClose(c *clientConn) error {
	if !a.kept {
		if n, err := c.receive(a.buffers.nothing[:1], 0); n > 0 {
			return errAnswer
		} else if err == nil {
			return nil
		}

		closeFlow(c.fd)
	}

	a.release(c, traffic.Monotonic())
	return nil
}

// release ends a flow. The parameter from is the time from which the flow's stream may start its next flow.
func (a *client) release(c *clientConn, from int64) {
	if a.due == nil {
		a.idle = append(a.idle, idleStream{c.stream, from})
	}

	if a.kept {
		c.state = stateIdle
		return
	}

	if c.slot != noSlot {
		a.table.remove(c.slot)
	}

	c.fd = -1
	a.table.spare = append(a.table.spare, c)
}

func (a *client) failed(c *clientConn, err error) {
	now := traffic.Monotonic()
	if c.state != stateLeaving {
		a.tally.fail(c.intended, now, failureWords(err))
	}

	if a.kept {
		a.err = fmt.Errorf("stream %d: %s", c.stream.gives.Key.Stream, failureWords(err))
	} else if c.fd >= 0 {
		abortFlow(c.fd)
	}

	a.release(c, now+failurePause)
}

// failureWords describes why a flow failed.
func failureWords(err error) string {
	switch {
	case err == io.EOF:
		return "closed before its end"
	case err == unix.EADDRNOTAVAIL:
		return "no port was free"
	}
	return err.Error()
}

// leave aborts the flows in progress. It counts them, and the flows that should have started.
func (a *client) leave(p *traffic.Phases) {
	for i := range a.table.slots {
		c := a.table.slots[i].conn
		if c == nil {
			continue
		}

		if c.state != stateLeaving && c.state != stateIdle {
			a.tally.abandon(c.intended)
		}

		if c.state == stateConnecting {
			a.tally.unconnected(c.intended)
		}

		if !a.kept {
			abortFlow(c.fd)
		}
	}

	if a.due == nil {
		return
	}

	for a.due.next < p.End {
		a.tally.begin(a.due.next, a.sizes.draw(a.rng))
		a.tally.abandon(a.due.next)
		a.tally.unconnected(a.due.next)
		a.due.advance()
	}
}
