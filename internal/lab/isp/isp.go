// Package isp plays an access provider on one port of a machine, and joins one as its subscriber: by DHCP
// (RFC 2131) or PPPoE (RFC 2516). Both sides are handlers in a process of their own, and undo their changes
// when their session ends, for whatever reason.
package isp

import (
	"context"
	"net/netip"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
)

// Event is a message from a provider while it serves; the first one, without a text, means that it has
// started.
type Event struct {
	Text string `json:"text,omitempty"`
}

// Handlers are the node sides.
func Handlers() map[string]host.Handler {
	return map[string]host.Handler{knob.VerbServe: host.Asked(serve), knob.VerbJoin: host.Asked(join)}
}

// held returns when the session ends, or with the first error before that.
func held(ctx context.Context, s host.Session, failed <-chan error) error {
	over := make(chan error, 1)
	go func() { over <- s.Recv(nil) }()
	select {
	case err := <-failed:
		return err
	case err := <-over:
		return host.Quiet(err)
	case <-ctx.Done():
		return nil
	}
}

// nth returns the n-th address, from 1, that a provider's network assigns to subscribers.
func nth(provider netip.Prefix, n int) (netip.Addr, bool) {
	a := provider.Masked().Addr()
	for i := 0; i < n; {
		a = a.Next()
		if !provider.Contains(a) || !provider.Contains(a.Next()) && a.Is4() { // the broadcast address
			return netip.Addr{}, false
		}

		if a != provider.Addr() {
			i++
		}
	}
	return a, true
}
