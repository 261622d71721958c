package host

import (
	"context"
	"time"
)

// Await is Recv that ctx can end, with ctx's cause. It does so by closing the session, which is of no more
// use then: an answer that comes later would be taken for the next one's.
func Await(ctx context.Context, s Session, v any) error {
	stop := context.AfterFunc(ctx, func() { s.Close() })
	defer stop()
	err := s.Recv(v)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
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
