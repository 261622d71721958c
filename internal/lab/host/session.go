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
	buf []byte // guarded by wmu

	queued atomic.Int64 // total size of the inboxes of all sessions in bytes
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

// inWords returns a readable error if err means that the other end has closed the connection. Otherwise, it
// returns err.
func inWords(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrClosedPipe) || errors.Is(err, syscall.EPIPE) {
		return errors.New("connection closed")
	}
	return err
}

// inbox is a queue of frames that have arrived for a session.
type inbox struct {
	mu     sync.Mutex
	cond   sync.Cond
	items  []frame
	queued int           // size of items in bytes, plus frameCost for each item
	all    *atomic.Int64 // total size over all sessions of the connection
	end    error         // returned by get after the last item, such as io.EOF or ErrAbandoned
}

// maxQueued is the maximum total size of the inboxes of a connection, in bytes. It is several times
// maxPayload. Our readers never fall that far behind.
const (
	maxQueued = 8 * maxPayload
	frameCost = 64 // memory overhead of a frame in bytes
)

var errFull = fmt.Errorf("connection: more than %d MiB wait to be read", maxQueued>>20)

func newInbox(all *atomic.Int64) *inbox {
	b := &inbox{all: all}
	b.cond.L = &b.mu
	return b
}

// put appends f to the inbox. It returns errFull if the inboxes would exceed maxQueued.
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

// finish makes get return err after the queued frames. If abandon is set, finish drops these frames, and get
// returns err at once.
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

// putBack makes get return f next.
func (b *inbox) putBack(f frame) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if errors.Is(b.end, ErrAbandoned) {
		return // f is dropped like the rest of the queue
	}

	b.items = append([]frame{f}, b.items...)
	b.count(len(f.payload) + frameCost)
}

// session implements both ends of a Session.
type session struct {
	link *link
	id   uint32
	in   *inbox
	// onClose removes the session from the client. It is nil on a node.
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
		// Ignore errors: a broken link has already ended the session.
		s.link.write(frame{frameClose, s.id, nil})
		s.in.finish(ErrAbandoned, true)
		s.onClose()
	})
	return nil
}

// Relay forwards messages and secrets between two sessions without decoding them. near is a node's session
// with the controller. far is a session that the node itself has opened, for example with a child process.
// Relay returns the error with which far ended, or nil if that error is io.EOF.
func Relay(near, far Session) error {
	n := near.(*session)
	f := far.(*session)
	go func() {
		// This goroutine ends with the session near, because the server finishes its inbox when our caller,
		// the handler, returns.
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
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}

		if err := n.link.write(frame{m.kind, n.id, m.payload}); err != nil {
			return err
		}
	}
}

// Await is like Recv, but also returns when ctx ends, with the cause of ctx. In that case, it closes the
// session, because a late answer could be mistaken for the answer to the next message.
func Await(ctx context.Context, s Session, v any) error {
	defer context.AfterFunc(ctx, func() { s.Close() })()
	err := s.Recv(v)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}

	return err
}

// Beyond returns a context that ends d after ctx has ended.
func Beyond(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	out, end := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		time.AfterFunc(d, func() { end(fmt.Errorf("no answer within %v of its end", d)) })
	})
	return out, func() { stop(); end(nil) }
}

// Pause waits for d. If ctx ends first, Pause returns its cause.
func Pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
