package host

import (
	"context"
	"fmt"
	"io"
	"time"
)

// Deadlined is a connection with deadlines for reads and writes.
type Deadlined interface {
	io.ReadWriteCloser
	SetReadDeadline(time.Time) error
	SetWriteDeadline(time.Time) error
}

// Steady is a connection that ends when the other end sends nothing for the time Silence, or does not read
// for the time Unread: it is dead, stopped or unreachable. An idle end sends something regularly, see
// KeepAlive.
type Steady struct {
	Deadlined
	Silence, Unread time.Duration
}

// Read fails with os.ErrDeadlineExceeded once the other end counts as dead.
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

// KeepAlive makes the agent at the other end answer regularly, so that neither end falls silent, until ctx
// ends or the agent is gone. Its errors are reported to the agent's next user.
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

// Within bounds the wait for an answer.
func Within(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, d, fmt.Errorf("%w: no answer within %s", ErrUnreachable, d))
}

// Answers checks that an agent responds, by one exchange: Clock takes many.
func Answers(ctx context.Context, a Agent) error {
	var now int64
	return a.Invoke(ctx, verbClock, struct{}{}, &now)
}
