package host

import (
	"context"
	"encoding/json"
	"io"
)

// Gateway serves a controller on conn by passing every session that it opens on to far, the clock's too, so
// that several controllers share an agent which can be reached by one connection only. It returns when conn
// ends or ctx is cancelled, which abandons this controller's sessions and nobody else's; far stays open,
// and undoes in its own time. If far is lost, the controller's sessions end with ErrUnreachable, also those
// that it opens later; explain, unless it is nil, words that and every other error of far. Verbs of own are
// served here instead of by far.
func Gateway(ctx context.Context, conn io.ReadWriteCloser, far Agent, own map[string]Handler,
	explain func(error) error) error {
	return newServer(conn, func(verb string) Handler {
		if h := own[verb]; h != nil {
			return h
		}
		return func(ctx context.Context, near Session) error {
			err := pass(ctx, verb, near, far)
			if err != nil && explain != nil && ctx.Err() == nil {
				err = explain(err)
			}
			return err
		}
	}).serve(ctx)
}

// Refuse serves a controller on conn by refusing all that it asks for with err, until it hangs up or ctx is
// cancelled.
func Refuse(ctx context.Context, conn io.ReadWriteCloser, err error) error {
	return newServer(conn, func(string) Handler {
		return func(context.Context, Session) error { return err }
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
