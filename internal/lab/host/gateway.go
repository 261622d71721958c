package host

import (
	"context"
	"encoding/json"
	"io"
)

// Gateway serves a controller on conn by passing every session that it opens
// on to far, the clock's too, so that several controllers share an agent
// which can be reached by one connection only. It returns when conn ends or
// ctx is cancelled, which abandons this controller's sessions and nobody
// else's; far stays open, and undoes in its own time. If far is lost, the
// controller's sessions end with ErrUnreachable, also those that it opens
// later.
func Gateway(ctx context.Context, conn io.ReadWriteCloser, far Agent) error {
	return newServer(conn, func(verb string) Handler {
		return func(ctx context.Context, near Session) error { return pass(ctx, verb, near, far) }
	}).serve(ctx)
}

func pass(ctx context.Context, verb string, near Session, far Agent) error {
	var first json.RawMessage
	if err := near.Recv(&first); err != nil {
		return err
	}
	s, err := far.Open(ctx, verb, first)
	if err != nil {
		return err
	}
	defer s.Close()
	stop := context.AfterFunc(ctx, func() { s.Close() })
	defer stop()
	return Relay(near, s)
}
