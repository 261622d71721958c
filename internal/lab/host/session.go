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

// link is a connection shared by many sessions. It serialises writes.
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
		l.buf = nil // free an unusually large buffer
	}

	return inWords(err)
}

// inWords returns a readable error for the errors that mean "the other end has closed the connection".
func inWords(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrClosedPipe) || errors.Is(err, syscall.EPIPE) {
		return errors.New("connection closed")
	}
	return err
}

// inbox queues the frames that arrive for one session.
type inbox struct {
	mu     sync.Mutex
	cond   sync.Cond
	items  []frame
	queued int           // size of items in bytes, including frameCost for each
	all    *atomic.Int64 // total over all sessions of the connection
	end    error         // returned by get after the items: io.EOF, ErrAbandoned, …
}

// maxQueued is the maximum size of all inboxes of a connection, in bytes. A payload of maxPayload fits
// several times; our readers never fall that far behind.
const (
	maxQueued = 8 * maxPayload
	frameCost = 64 // memory overhead of a frame, in bytes
)

var errFull = fmt.Errorf("connection: more than %d MiB wait to be read", maxQueued>>20)

func newInbox(all *atomic.Int64) *inbox {
	b := &inbox{all: all}
	b.cond.L = &b.mu
	return b
}

// put appends f to the inbox. It returns errFull if too much is waiting to be read.
func (b *inbox) put(f frame) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.end != nil {
		return nil
	}

	if b.all.Load()+int64(len(f.payload)+frameCost) > maxQueued { // no race: only one goroutine calls put
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

// finish makes get return err after the queued frames, or at once if abandon is set, which drops the queue.
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
		return // f is dropped with the rest
	}

	b.items = append([]frame{f}, b.items...)
	b.count(len(f.payload) + frameCost)
}

// session is either end of a Session.
type session struct {
	link *link
	id   uint32
	in   *inbox
	// onClose removes the session from the client; nil on the node.
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
		s.link.write(frame{frameClose, s.id, nil}) // fails on a broken link, which has ended the session
		s.in.finish(ErrAbandoned, true)
		s.onClose()
	})
	return nil
}

// Relay forwards messages and secrets between a node's session near and a session far that the node opened
// itself, for example to a child process. It does not decode them. It returns the error with which far ended,
// nil for io.EOF.
func Relay(near, far Session) error {
	n, ok1 := near.(*session)
	f, ok2 := far.(*session)
	if !ok1 || !ok2 {
		return errors.New("relay sessions: not of this package")
	}

	go func() {
		// This goroutine ends with near: the server finishes the inbox of near when our caller, the handler,
		// returns.
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

// Await is like Recv, but also returns when ctx ends, with its cause. It then closes the session, because a
// late answer could be mistaken for the next one.
func Await(ctx context.Context, s Session, v any) error {
	defer context.AfterFunc(ctx, func() { s.Close() })()
	err := s.Recv(v)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}

	return err
}

// Beyond returns a context that ends when d has passed since the end of ctx.
func Beyond(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	out, end := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		time.AfterFunc(d, func() { end(fmt.Errorf("no answer within %v of its end", d)) })
	})
	return out, func() { stop(); end(nil) }
}

// Pause waits for d, or until ctx ends and returns its cause.
func Pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
