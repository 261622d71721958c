package host

import (
	"context"
	"encoding/json"
	"errors"
)

// Vetted has judge see what a session begins with before the handler does: it returns what the handler gets
// in its place, or why the session is refused.
func Vetted(h Handler, judge func(first json.RawMessage) (any, error)) Handler {
	return func(ctx context.Context, s Session) error {
		own, ok := s.(*session)
		if !ok {
			return errors.New("vet a session: not of this package")
		}
		var first json.RawMessage
		if err := own.Recv(&first); err != nil {
			return err
		}
		allowed, err := judge(first)
		if err != nil {
			return err
		}
		b, err := encode(allowed)
		if err != nil {
			return err
		}
		own.in.putBack(frame{frameData, own.id, b})
		return h(ctx, s)
	}
}

// AtOnce serves no more than n sessions of all handlers together at a time; further ones are refused.
func AtOnce(n int, handlers map[string]Handler) map[string]Handler {
	places := make(chan struct{}, n)
	out := make(map[string]Handler, len(handlers))
	for verb, h := range handlers {
		out[verb] = func(ctx context.Context, s Session) error {
			select {
			case places <- struct{}{}:
			default:
				return errors.New("too many sessions at once")
			}
			defer func() { <-places }()
			return h(ctx, s)
		}
	}
	return out
}
