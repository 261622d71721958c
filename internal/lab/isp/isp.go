// Package isp emulates an access provider on a machine's port, and its subscriber, by DHCP (RFC 2131) or
// PPPoE (RFC 2516). Both run as handlers in child processes, and undo their changes when their session ends,
// for whatever reason.
package isp

import (
	"context"
	"net/netip"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
)

// Event is a provider's message while it serves. The first one has no text and reports that it has started.
type Event struct {
	Text string `json:"text,omitempty"`
}

// Handlers returns the handlers of the provider and the subscriber, by verb.
func Handlers() map[string]host.Handler {
	return map[string]host.Handler{knob.VerbServe: host.Asked(serve), knob.VerbJoin: host.Asked(join)}
}

// held waits for the end of the session or of ctx, or for the first error from failed, which it returns.
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

// nth returns the n-th address, counted from 1, that the provider assigns from its network. It skips the
// provider's own address.
func nth(provider netip.Prefix, n int) (netip.Addr, bool) {
	a := provider.Masked().Addr()
	for i := 0; i < n; {
		a = a.Next()
		if !provider.Contains(a) || !provider.Contains(a.Next()) && a.Is4() { // broadcast address
			return netip.Addr{}, false
		}

		if a != provider.Addr() {
			i++
		}
	}
	return a, true
}
