package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// link is one connection with many sessions; it serialises writing.
type link struct {
	rwc io.ReadWriteCloser
	wmu sync.Mutex
	buf []byte // protected by wmu

	queued atomic.Int64 // bytes in the inboxes of all sessions
}

func (l *link) write(f frame) error {
	l.wmu.Lock()
	defer l.wmu.Unlock()
	l.buf = appendFrame(l.buf[:0], f)
	_, err := l.rwc.Write(l.buf)
	if cap(l.buf) > 1<<20 {
		l.buf = nil // do not keep a large buffer permanently
	}

	return inWords(err)
}

// inWords replaces the various errors of a connection whose other end is gone with a readable one.
func inWords(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrClosedPipe) || errors.Is(err, syscall.EPIPE) {
		return errors.New("connection closed")
	}
	return err
}

// inbox is the queue of frames that arrived for one session.
type inbox struct {
	mu     sync.Mutex
	cond   sync.Cond
	items  []frame
	queued int           // bytes of the items, with their overhead
	all    *atomic.Int64 // the same for all sessions of the connection
	end    error         // delivered after the items; io.EOF, ErrAbandoned, …
}

// maxQueued bounds what may wait in all inboxes of a connection: several messages of a result, more than any
// of our readers ever falls behind.
const (
	maxQueued = 8 * maxPayload
	frameCost = 64 // of the smallest
)

var errFull = fmt.Errorf("connection: more than %d MiB wait to be read", maxQueued>>20)

func newInbox(all *atomic.Int64) *inbox {
	b := &inbox{all: all}
	b.cond.L = &b.mu
	return b
}

// put fails if nobody reads the inbox.
func (b *inbox) put(f frame) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.end != nil {
		return nil
	}

	if b.all.Load()+int64(len(f.payload)+frameCost) > maxQueued { // only one goroutine calls put
		return errFull
	}

	b.items = append(b.items, f)
	b.count(len(f.payload) + frameCost)
	b.cond.Signal()
	return nil
}

func (b *inbox) count(n int) {
	b.queued += n
	b.all.Add(int64(n))
}

// finish makes get return err after the queued items; abandon drops the queue.
func (b *inbox) finish(err error, abandon bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if abandon {
		b.items = nil
		b.count(-b.queued)
	} else if b.end != nil {
		return
	}

	b.end = err
	b.cond.Broadcast()
}

func (b *inbox) get() (frame, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.items) == 0 && b.end == nil {
		b.cond.Wait()
	}

	if len(b.items) == 0 {
		return frame{}, b.end
	}

	f := b.items[0]
	b.items = b.items[1:]
	b.count(-len(f.payload) - frameCost)
	return f, nil
}

// putBack makes f the next frame that get returns.
func (b *inbox) putBack(f frame) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if errors.Is(b.end, ErrAbandoned) {
		return // and f is one
	}

	b.items = append([]frame{f}, b.items...)
	b.count(len(f.payload) + frameCost)
}

// session is either end of a conversation.
type session struct {
	link *link
	id   uint32
	in   *inbox
	// onClose is set at the controller's end: it forgets the session.
	onClose func()
	once    sync.Once
}

func (s *session) Send(v any) error {
	b, err := encode(v)
	if err != nil {
		return err
	}
	return s.link.write(frame{frameData, s.id, b})
}

func (s *session) Recv(v any) error {
	f, err := s.in.get()
	if err != nil {
		return err
	}

	if f.kind != frameData {
		return errors.New("receive from agent: a secret where a value was expected")
	}

	if v == nil {
		return nil
	}

	if err := json.Unmarshal(f.payload, v); err != nil {
		return fmt.Errorf("decode %T from agent: %w", v, err)
	}

	return nil
}

func (s *session) SendSecret(x Secret) error { return s.link.write(frame{frameSecret, s.id, x.read()}) }

func (s *session) RecvSecret() (Secret, error) {
	f, err := s.in.get()
	if err != nil {
		return Secret{}, err
	}

	if f.kind != frameSecret {
		return Secret{}, errors.New("receive from agent: a value where a secret was expected")
	}

	return SecretFrom(f.payload), nil
}

func (s *session) Finish() error {
	if s.onClose == nil {
		return nil
	}
	return s.link.write(frame{frameFinish, s.id, nil})
}

func (s *session) Close() error {
	if s.onClose == nil {
		return nil
	}

	s.once.Do(func() {
		s.link.write(frame{frameClose, s.id, nil}) // a dead link has closed it already
		s.in.finish(ErrAbandoned, true)
		s.onClose()
	})
	return nil
}

// Relay connects a node's session to one that the node itself opened elsewhere, such as in a child process:
// messages and secrets pass in both directions unread. It returns what the far handler returned.
func Relay(near, far Session) error {
	n, ok1 := near.(*session)
	f, ok2 := far.(*session)
	if !ok1 || !ok2 {
		return errors.New("relay sessions: not of this package")
	}

	go func() {
		// Ends with the near session: the server finishes its inbox when the handler, our caller, has
		// returned.
		for {
			m, err := n.in.get()
			switch {
			case errors.Is(err, io.EOF):
				f.Finish()
				return
			case err != nil:
				f.Close()
				return
			}

			f.link.write(frame{m.kind, f.id, m.payload})
		}
	}()
	for {
		m, err := f.in.get()
		if errors.Is(err, io.EOF) {
			return nil
		}

		if err != nil {
			return err
		}

		if err := n.link.write(frame{m.kind, n.id, m.payload}); err != nil {
			return err
		}
	}
}

// Await is Recv that also ends with ctx, with its cause. It then closes the session, which is unusable
// afterwards: a late answer would be mistaken for the next one.
func Await(ctx context.Context, s Session, v any) error {
	defer context.AfterFunc(ctx, func() { s.Close() })()
	err := s.Recv(v)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}

	return err
}

// Beyond returns a context that ends some time after another.
func Beyond(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	out, end := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		time.AfterFunc(d, func() { end(fmt.Errorf("no answer within %v of its end", d)) })
	})
	return out, func() { stop(); end(nil) }
}

// Pause waits for a time, or returns why ctx ended.
func Pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
