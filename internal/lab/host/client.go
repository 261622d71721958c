package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"sync"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
)

// Connect returns a client for the agent at the other end of rwc. It takes ownership of rwc and starts a
// goroutine that reads until the connection ends.
func Connect(rwc io.ReadWriteCloser) Agent {
	a := newClient(rwc)
	go a.read()
	return a
}

func newClient(rwc io.ReadWriteCloser) *client {
	return &client{
		link:     &link{rwc: rwc},
		began:    Monotonic(),
		sessions: map[uint32]*session{},
		done:     make(chan struct{}),
		met:      make(chan struct{}),
	}
}

type client struct {
	link  *link
	began int64
	done  chan struct{} // closed when the reading goroutine has ended
	met   chan struct{} // closed after the first hello from an agent; see ConnectLine

	mu       sync.Mutex
	sessions map[uint32]*session
	next     uint32
	err      error // reason why the connection ended
	node     int64 // start time in the agent's latest hello, or 0 before the first hello
}

func (a *client) read() {
	defer close(a.done)
	for {
		f, err := readFrame(a.link.rwc)
		if err != nil {
			a.fail(err)
			return
		}

		if f.kind == frameHello {
			a.heardHello(f)
			continue
		}

		a.mu.Lock()
		s := a.sessions[f.session]
		a.mu.Unlock()
		if s == nil {
			continue // a late frame for a session that we closed
		}

		a.deliver(s, f)
	}
}

func (a *client) deliver(s *session, f frame) {
	switch f.kind {
	case frameData, frameSecret:
		if f.kind == frameData {
			f.payload = check.PlainJSON(f.payload)
		}

		if err := s.in.put(f); err != nil {
			s.in.finish(fmt.Errorf("agent: %w", err), true)
			a.forget(s.id)
		}
	case frameEnd:
		s.in.finish(io.EOF, false)
		a.forget(s.id)
	case frameError:
		var w wireError
		if err := json.Unmarshal(check.PlainJSON(f.payload), &w); err != nil {
			w = wireError{Code: codeError, Text: "undecodable error from agent"}
		}

		s.in.finish(&RemoteError{w.Code, w.Text, w.Hint}, false)
		a.forget(s.id)
	}
}

func (a *client) forget(id uint32) {
	a.mu.Lock()
	delete(a.sessions, id)
	a.mu.Unlock()
}

func (a *client) fail(err error) {
	err = fmt.Errorf("agent: %w: %w", ErrUnreachable, inWords(err))
	a.mu.Lock()
	a.err = err
	open := a.sessions
	a.sessions = map[uint32]*session{}
	a.mu.Unlock()
	for _, s := range open {
		s.in.finish(err, false)
	}
}

func (a *client) Open(ctx context.Context, verb string, in any) (Session, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}

	payload, err := encode(in)
	if err != nil {
		return nil, err
	}

	a.mu.Lock()
	if a.err != nil {
		err := a.err
		a.mu.Unlock()
		return nil, err
	}

	a.next++
	s := &session{link: a.link, id: a.next, in: newInbox(&a.link.queued)}
	s.onClose = func() { a.forget(s.id) }
	a.sessions[s.id] = s
	a.mu.Unlock()
	request, _ := encode(openRequest{verb})
	for _, f := range []frame{{frameOpen, s.id, request}, {frameData, s.id, payload}} {
		if err := a.link.write(f); err != nil {
			a.forget(s.id)
			return nil, fmt.Errorf("open %s: %w: %w", verb, ErrUnreachable, err)
		}
	}

	return s, nil
}

func (a *client) Invoke(ctx context.Context, verb string, in, out any) error {
	s, err := a.Open(ctx, verb, in)
	if err != nil {
		return err
	}
	defer s.Close()
	defer context.AfterFunc(ctx, func() { s.Close() })()
	if err := s.Finish(); err != nil {
		return fmt.Errorf("%s: %w: %w", verb, ErrUnreachable, err)
	}

	err = s.Recv(out)
	if err == nil {
		err = drain(s)
	}

	if errors.Is(err, io.EOF) {
		if out != nil {
			return fmt.Errorf("%s: no answer", verb)
		}
		return nil
	}

	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", verb, context.Cause(ctx))
	}

	return err
}

// drain discards the remaining messages of s and waits until the session ends.
func drain(s Session) error {
	for {
		err := s.Recv(nil)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// Clock estimates the clock offset from the fastest of several exchanges. The node reads its clock within the
// round trip, so half of the round-trip time bounds the error (RFC 5905 §8, without the drift terms).
func (a *client) Clock(ctx context.Context) (offset, bound int64, err error) {
	return relateClocks(Monotonic, func() (node int64, err error) {
		err = a.Invoke(ctx, verbClock, struct{}{}, &node)
		return node, err
	})
}

// relateClocks makes at least five exchanges. Because stalls of a machine can delay all of them, it continues
// until the two fastest exchanges took about the same time, or 250 ms have passed.
func relateClocks(now func() int64, exchange func() (node int64, err error)) (offset, bound int64,
	err error) {
	const (
		least   = 5
		patient = int64(250 * time.Millisecond)
		alike   = int64(50 * time.Microsecond) // maximum difference in ns, in addition to half of the bound
	)
	begun := now()
	second := int64(math.MaxInt64)
	bound = math.MaxInt64
	for n := 0; n < least || second-bound > bound/2+alike && now()-begun < patient; n++ {
		before := now()
		node, err := exchange()
		if err != nil {
			return 0, 0, err
		}

		half := (now() - before + 1) / 2
		if half >= bound {
			second = min(second, half)
			continue
		}

		second = bound
		bound = half
		offset = node - (before + half)
	}

	return offset, bound, nil
}

// Close ends every session and waits until the reader has stopped.
func (a *client) Close() error {
	err := a.link.rwc.Close()
	<-a.done
	return err
}

// Inside returns an agent that this process serves until the agent is closed or ctx ends.
func Inside(ctx context.Context, handlers map[string]Handler) Agent {
	near, far := net.Pipe()
	a := &inside{Agent: Connect(near), served: make(chan error, 1)}
	go func() { a.served <- Serve(ctx, far, handlers) }()
	return a
}

type inside struct {
	Agent
	served chan error
}

// Close waits until all handlers have undone their changes.
func (a *inside) Close() error {
	err := errors.Join(a.Agent.Close(), <-a.served)
	a.served <- nil // so that a second Close returns
	return err
}
