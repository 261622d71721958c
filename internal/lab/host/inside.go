package host

import (
	"context"
	"errors"
	"net"
)

// Inside returns an agent that is served by this very process until it is closed or ctx ends.
func Inside(ctx context.Context, handlers map[string]Handler) Agent {
	near, far := net.Pipe()
	a := &inside{Agent: Connect(near), served: make(chan error, 1)}
	go func() { a.served <- Serve(ctx, far, handlers) }()
	return a
}

type inside struct {
	Agent
	served chan error
}

// Close waits until every handler has undone what it did.
func (a *inside) Close() error { return errors.Join(a.Agent.Close(), <-a.served) }
