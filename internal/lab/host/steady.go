package host

import (
	"context"
	"fmt"
	"io"
	"time"
)

// Deadlined is a connection that supports deadlines for reads and writes.
type Deadlined interface {
	io.ReadWriteCloser
	SetReadDeadline(time.Time) error
	SetWriteDeadline(time.Time) error
}

// Steady is a connection that fails if the peer sends nothing for Silence or reads nothing for Unread,
// because the peer is then dead, stopped or unreachable. An idle peer must therefore send something
// regularly; see KeepAlive.
type Steady struct {
	Deadlined
	Silence, Unread time.Duration
}

// Read returns os.ErrDeadlineExceeded if no bytes arrive for s.Silence.
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

// KeepAlive sends a request to the agent at the given interval, so that both ends of the connection send
// something regularly. It returns when ctx ends or a request fails. It does not report the error, because the
// next request to the agent will return it.
func KeepAlive(ctx context.Context, a Agent, every time.Duration) {
	for Pause(ctx, every) == nil && Answers(ctx, a) == nil {
	}
}

// Within returns a context that ends after d, with ErrUnreachable as the cause.
func Within(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, d, fmt.Errorf("%w: no answer within %s", ErrUnreachable, d))
}

// Answers checks that the agent responds. It makes only one exchange, whereas Clock needs several.
func Answers(ctx context.Context, a Agent) error {
	var now int64
	return a.Invoke(ctx, verbClock, struct{}{}, &now)
}
