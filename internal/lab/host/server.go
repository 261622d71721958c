package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"syscall"
)

const verbClock = "clock"

// Serve is the node's end of Connect: it runs a handler for each session that the controller opens, until
// the connection ends or ctx is cancelled. Then every handler's context is cancelled, and Serve returns
// when all have undone what they did. It returns nil when the controller hung up or ctx ended, and an error
// when what it read cannot be understood.
func Serve(ctx context.Context, rwc io.ReadWriteCloser, handlers map[string]Handler) error {
	return newServer(rwc, verbs(handlers)).serve(ctx)
}

// verbs finds a handler by its verb; nil means that it is unknown.
func verbs(handlers map[string]Handler) func(verb string) Handler {
	return func(verb string) Handler {
		if verb == verbClock {
			return tellClock
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
	stop := context.AfterFunc(ctx, func() { s.link.rwc.Close() })
	defer stop()
	err := s.read(ctx)
	told := ctx.Err() != nil // before we cancel it ourselves
	cancel()
	s.abandonAll()
	s.running.Wait()
	s.link.rwc.Close()
	if hungUp(err) || told && !errors.Is(err, ErrVersion) {
		return nil
	}
	return err
}

// hungUp tells a controller that is gone from a damaged connection. A reset is one that died with our
// answers unread.
func hungUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET)
}

type serving struct {
	*session
	cancel context.CancelFunc
}

type server struct {
	link    *link
	find    func(verb string) Handler // nil for an unknown one
	began   int64
	running sync.WaitGroup

	controller int64 // when the controller began that heardHello last; the reader's

	mu       sync.Mutex
	sessions map[uint32]*serving
}

func (s *server) read(ctx context.Context) error {
	for {
		f, err := readFrame(s.link.rwc)
		if err != nil {
			if errors.Is(err, ErrVersion) {
				s.end(0, err)
			}
			return err
		}
		s.handle(ctx, f)
	}
}

func (s *server) handle(ctx context.Context, f frame) {
	switch f.kind {
	case frameOpen:
		s.open(ctx, f)
		return
	case frameHello:
		s.heardHello(f)
		return
	}
	s.mu.Lock()
	v := s.sessions[f.session]
	s.mu.Unlock()
	if v == nil {
		return // of a session that has ended
	}
	switch f.kind {
	case frameData, frameSecret:
		v.in.put(f)
	case frameFinish:
		v.in.finish(io.EOF, false)
	case frameClose:
		v.in.finish(ErrAbandoned, true)
		v.cancel()
	}
}

func (s *server) open(ctx context.Context, f frame) {
	var r openRequest
	if err := json.Unmarshal(f.payload, &r); err != nil {
		s.end(f.session, fmt.Errorf("open session: %w", err))
		return
	}
	handler := s.find(r.Verb)
	if handler == nil {
		s.end(f.session, fmt.Errorf("%w %q", ErrUnknownVerb, r.Verb))
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	v := &serving{session: &session{link: s.link, id: f.session, in: newInbox()}, cancel: cancel}
	s.mu.Lock()
	s.sessions[f.session] = v
	s.mu.Unlock()
	s.running.Add(1)
	go func() {
		defer s.running.Done()
		defer cancel()
		err := handler(ctx, v.session)
		v.in.finish(ErrAbandoned, true)
		s.mu.Lock()
		delete(s.sessions, f.session)
		s.mu.Unlock()
		s.end(f.session, err)
	}()
}

// end tells the controller how a handler ended; a lost link needs no telling.
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

func tellClock(_ context.Context, s Session) error { return s.Send(Monotonic()) }
