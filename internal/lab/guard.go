package lab

import (
	"context"
	"errors"
	"sync"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// verbEnds is answered by the process that runs a guest, not by the guest: once that has ended, with the
// error that says how.
var verbEnds = host.Verb("guest", "ends")

// Guard returns when a router that is a guest has ended, or was ended because it hung, and says so with the
// last words of its console. It returns nil when ctx ends first, or when there is nothing to guard.
func (l *Lab) Guard(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var all sync.WaitGroup
	var mu sync.Mutex
	var found error
	for _, name := range l.Topology.Routers {
		n, err := l.Node(ctx, name)
		if err != nil || !n.Facts.Guest() || n.connection() == nil {
			continue // whoever uses the node is told
		}
		all.Go(func() {
			err := ended(ctx, n.connection())
			mu.Lock()
			defer mu.Unlock()
			if err != nil && found == nil {
				found = err
				cancel()
			}
		})
	}
	all.Wait()
	return found
}

// ended waits for the end of a guest.
func ended(ctx context.Context, a host.Agent) error {
	s, err := a.Open(ctx, verbEnds, nil)
	if err == nil {
		defer s.Close()
		err = host.Await(ctx, s, nil)
	}
	if ctx.Err() != nil || !errors.Is(err, host.ErrUnreachable) {
		return nil // nobody there who could tell
	}
	return err
}
