package host

import (
	"context"
	"fmt"
	"io"
	"time"
)

// Deadlined is a connection whose reads and writes can be given up.
type Deadlined interface {
	io.ReadWriteCloser
	SetReadDeadline(time.Time) error
	SetWriteDeadline(time.Time) error
}

// Steady is a connection that ends when the other end says nothing for the time Silence, or leaves what was
// said unread for the time Unread: it is dead, stopped or out of reach. Whoever has nothing to say speaks
// all the same, see KeepAlive.
type Steady struct {
	Deadlined
	Silence, Unread time.Duration
}

// Read is os.ErrDeadlineExceeded once the other end is taken for dead.
func (s Steady) Read(b []byte) (int, error) {
	if err := s.SetReadDeadline(time.Now().Add(s.Silence)); err != nil {
		return 0, err
	}
	return s.Deadlined.Read(b)
}

func (s Steady) Write(b []byte) (int, error) {
	if err := s.SetWriteDeadline(time.Now().Add(s.Unread)); err != nil {
		return 0, err
	}
	return s.Deadlined.Write(b)
}

// KeepAlive has the agent at the other end answer every now and then, so that neither end falls silent, until
// ctx ends or the agent is gone. Its errors are those of whoever uses the agent next.
func KeepAlive(ctx context.Context, a Agent, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}

		if Answers(ctx, a) != nil {
			return
		}
	}
}

// Within bounds how long an answer is waited for.
func Within(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, d, fmt.Errorf("%w: no answer within %s", ErrUnreachable, d))
}

// Answers asks an agent for a sign of life, by one exchange: Clock takes many.
func Answers(ctx context.Context, a Agent) error {
	var now int64
	return a.Invoke(ctx, verbClock, struct{}{}, &now)
}
