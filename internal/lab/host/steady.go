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

// Steady is a connection that fails when the peer sends nothing for Silence, or reads nothing for Unread: the
// peer is then dead, stopped or unreachable. An idle peer must send something regularly, see KeepAlive.
type Steady struct {
	Deadlined
	Silence, Unread time.Duration
}

// Read returns os.ErrDeadlineExceeded if nothing arrives for s.Silence.
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
// regularly. It returns when ctx ends or a request fails. It does not report the error: the agent's next user
// gets it, too.
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

// Within returns a context that ends with ErrUnreachable after d.
func Within(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, d, fmt.Errorf("%w: no answer within %s", ErrUnreachable, d))
}

// Answers checks by one exchange that the agent responds. Clock needs several.
func Answers(ctx context.Context, a Agent) error {
	var now int64
	return a.Invoke(ctx, verbClock, struct{}{}, &now)
}
