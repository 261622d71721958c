// Package isp emulates an access provider on the port of a machine, and a subscriber of the provider, with
// DHCP (RFC 2131) or PPPoE (RFC 2516). Both run as handlers in child processes, and undo their changes when
// their session ends, for whatever reason.
package isp

import (
	"context"
	"net/netip"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
)

// Event is a message that a provider sends while it serves. The first Event has no text and reports that the
// provider has started.
type Event struct {
	Text string `json:"text,omitempty"`
}

// Handlers returns the handlers of the provider and the subscriber, by verb.
func Handlers() map[string]host.Handler {
	return map[string]host.Handler{knob.VerbServe: host.Asked(serve), knob.VerbJoin: host.Asked(join)}
}

// held waits until the session or ctx ends, or until failed yields an error, which held returns.
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

// nth returns the n-th address, counted from 1, that the provider assigns from its network. The provider's
// own address is not counted.
func nth(provider netip.Prefix, n int) (netip.Addr, bool) {
	a := provider.Masked().Addr()
	for i := 0; i < n; {
		a = a.Next()
		if !provider.Contains(a) || !provider.Contains(a.Next()) && a.Is4() { // a is the broadcast address
			return netip.Addr{}, false
		}

		if a != provider.Addr() {
			i++
		}
	}
	return a, true
}
