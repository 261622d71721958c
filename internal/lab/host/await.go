package host

import "context"

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
