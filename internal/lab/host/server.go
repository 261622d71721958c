package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"sync"
	"syscall"
)

const verbClock = "clock"

// Serve serves a controller on rwc. It runs a handler for each session until the connection ends or ctx is
// cancelled. Then it cancels the handlers' contexts, and waits until all handlers have undone their changes.
// It returns nil if the controller closed the connection or ctx was cancelled, and an error if it received
// invalid input.
func Serve(ctx context.Context, rwc io.ReadWriteCloser, handlers map[string]Handler) error {
	return newServer(rwc, verbs(handlers)).serve(ctx)
}

// verbs returns a function that returns the handler of a verb, or nil if there is none.
func verbs(handlers map[string]Handler) func(verb string) Handler {
	return func(verb string) Handler {
		if verb == verbClock {
			return func(_ context.Context, s Session) error { return s.Send(Monotonic()) }
		}
		return handlers[verb]
	}
}

func newServer(rwc io.ReadWriteCloser, find func(verb string) Handler) *server {
	return &server{link: &link{rwc: rwc}, find: find, began: Monotonic(), sessions: map[uint32]*serving{}}
}

func (s *server) serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { s.link.rwc.Close() })()
	err := s.read(ctx)
	told := ctx.Err() != nil // checked first, because we cancel the context ourselves later
	cancel()
	s.abandonAll()
	s.running.Wait()
	s.link.rwc.Close()
	if hungUp(err) || told && !errors.Is(err, ErrVersion) {
		return nil
	}

	return err
}

// hungUp reports whether err means that the controller is gone, rather than that the connection is damaged. A
// reset means that the controller died without reading our answers. An exceeded deadline means that it
// stopped sending.
func hungUp(err error) bool {
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, io.EOF) ||
		errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET)
}

type serving struct {
	*session
	cancel context.CancelFunc
}

type server struct {
	link    *link
	find    func(verb string) Handler // returns nil if the verb is unknown
	began   int64
	running sync.WaitGroup

	controller int64 // start time in the last hello of a controller; used only by the reader

	mu       sync.Mutex
	sessions map[uint32]*serving
	open     int // number of handlers that are running or whose end has not been reported yet
}

// maxSessions is the maximum number of sessions per controller. Our controllers open a few dozen.
const maxSessions = 1024

func (s *server) read(ctx context.Context) error {
	for {
		f, err := readFrame(s.link.rwc)
		if err != nil {
			if errors.Is(err, ErrVersion) {
				s.end(0, err)
			}
			return err
		}

		if err := s.handle(ctx, f); err != nil {
			return err
		}
	}
}

// handle processes a frame. It returns an error if the controller violates the protocol.
func (s *server) handle(ctx context.Context, f frame) error {
	switch f.kind {
	case frameOpen:
		return s.begin(ctx, f)
	case frameHello:
		s.heardHello(f)
		return nil
	}

	s.mu.Lock()
	v := s.sessions[f.session]
	s.mu.Unlock()
	if v == nil {
		return nil // a late frame for a session that has ended
	}

	switch f.kind {
	case frameData, frameSecret:
		if err := v.in.put(f); err != nil {
			v.in.finish(err, true)
			v.cancel()
		}
	case frameFinish:
		v.in.finish(io.EOF, false)
	case frameClose:
		v.in.finish(ErrAbandoned, true)
		v.cancel()
	}

	return nil
}

func (s *server) begin(ctx context.Context, f frame) error {
	var r openRequest
	if err := json.Unmarshal(f.payload, &r); err != nil {
		s.end(f.session, fmt.Errorf("open session: %w", err))
		return nil
	}

	handler := s.find(r.Verb)
	if handler == nil {
		s.end(f.session, fmt.Errorf("%w %q", ErrUnknownVerb, r.Verb))
		return nil
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.sessions[f.session] != nil:
		return fmt.Errorf("open session %d: it is open", f.session)
	case s.open >= maxSessions:
		return fmt.Errorf("open session: %d are open", s.open)
	}

	ctx, cancel := context.WithCancel(ctx)
	v := &serving{
		session: &session{link: s.link, id: f.session, in: newInbox(&s.link.queued)},
		cancel:  cancel,
	}
	s.sessions[f.session] = v
	s.open++
	s.running.Go(func() {
		defer cancel()
		err := guarded(ctx, r.Verb, handler, v.session)
		v.in.finish(ErrAbandoned, true)
		s.mu.Lock()
		delete(s.sessions, f.session)
		s.mu.Unlock()
		s.end(f.session, err)
		s.mu.Lock()
		s.open--
		s.mu.Unlock()
	})
	return nil
}

// guarded runs a handler. A panic ends only the session of that handler, whose deferred functions have undone
// its changes by then.
func guarded(ctx context.Context, verb string, h Handler, s Session) (err error) {
	defer func() {
		fault := recover()
		if fault != nil {
			debug.PrintStack() // because the error does not contain the stack
			err = fmt.Errorf("%s: a fault of the program: %v", verb, fault)
		}
	}()
	return h(ctx, s)
}

// end reports the result of a handler to the controller. It ignores errors of the link.
func (s *server) end(id uint32, err error) {
	if err == nil {
		s.link.write(frame{frameEnd, id, nil})
		return
	}

	b, _ := encode(toWire(err))
	s.link.write(frame{frameError, id, b})
}

func (s *server) abandonAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range s.sessions {
		v.in.finish(ErrAbandoned, true)
		v.cancel()
	}
}

// Asked returns a handler that decodes the first message of a session and passes it to h.
func Asked[Q any](h func(ctx context.Context, s Session, q Q) error) Handler {
	return func(ctx context.Context, s Session) error {
		var q Q
		if err := s.Recv(&q); err != nil {
			return err
		}
		return h(ctx, s, q)
	}
}

// Answering returns a handler that calls answer with the first message of a session and sends back the
// result.
func Answering[Q, A any](answer func(ctx context.Context, q Q) (A, error)) Handler {
	return Asked(func(ctx context.Context, s Session, q Q) error {
		a, err := answer(ctx, q)
		if err != nil {
			return err
		}
		return s.Send(a)
	})
}

// Vetted returns a handler that calls check with the first message of a session before it calls h. check
// returns the message to pass to h, or an error that ends the session.
func Vetted(h Handler, check func(first json.RawMessage) (any, error)) Handler {
	return func(ctx context.Context, s Session) error {
		var first json.RawMessage
		if err := s.Recv(&first); err != nil {
			return err
		}

		allowed, err := check(first)
		if err != nil {
			return err
		}

		b, err := encode(allowed)
		if err != nil {
			return err
		}

		own := s.(*session)
		own.in.putBack(frame{frameData, own.id, b})
		return h(ctx, s)
	}
}

// AtOnce wraps handlers so that together they serve at most n sessions at a time, and reject further
// sessions.
func AtOnce(n int, handlers map[string]Handler) map[string]Handler {
	places := make(chan struct{}, n)
	out := make(map[string]Handler, len(handlers))
	for verb, h := range handlers {
		out[verb] = func(ctx context.Context, s Session) error {
			select {
			case places <- struct{}{}:
			default:
				return errors.New("too many sessions at once")
			}
			defer func() { <-places }()
			return h(ctx, s)
		}
	}

	return out
}

// Gateway serves a controller on conn by forwarding its sessions and clock exchanges to far. Several
// controllers can thus share an agent that has only one connection. Gateway itself serves the verbs in own.
// It returns when conn ends or ctx is cancelled; this abandons only the sessions of this controller, and far
// stays open. If far is lost, the current and later sessions of the controller end with ErrUnreachable. If
// explain is not nil, it rewords the errors of far.
func Gateway(ctx context.Context, conn io.ReadWriteCloser, far Agent, own map[string]Handler,
	explain func(error) error) error {
	return newServer(conn, func(verb string) Handler {
		h := own[verb]
		if h != nil {
			return h
		}
		return Asked(func(ctx context.Context, near Session, first json.RawMessage) error {
			err := pass(ctx, verb, first, near, far)
			if err != nil && explain != nil && ctx.Err() == nil {
				err = explain(err)
			}
			return err
		})
	}).serve(ctx)
}

// Refuse serves a controller on conn until the controller disconnects or ctx is cancelled. It answers every
// request with err.
func Refuse(ctx context.Context, conn io.ReadWriteCloser, err error) error {
	return newServer(conn, func(string) Handler {
		return func(context.Context, Session) error { return err }
	}).serve(ctx)
}

func pass(ctx context.Context, verb string, first json.RawMessage, near Session, far Agent) error {
	s, err := far.Open(ctx, verb, first)
	if err != nil {
		return err
	}
	defer s.Close()
	defer context.AfterFunc(ctx, func() { s.Close() })()
	return Relay(near, s)
}
