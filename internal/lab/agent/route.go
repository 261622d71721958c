package agent

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// FindRoute asks a node which routers lie between it and an echo: datagrams whose time to live ends on the
// way (RFC 1812 §4.3.2.7) name them.
type FindRoute struct {
	From netip.Addr `json:"from"`
	To   netip.Addr `json:"to"`
	Port int        `json:"port"`
	Tag  string     `json:"tag"` // see EchoAt
}

// FoundRoute is what a node found: how many routers forward a datagram, known only if one came back, and
// who they are, the nearest first. A router that does not name itself is the zero address.
type FoundRoute struct {
	Reached bool         `json:"reached"`
	Routers []netip.Addr `json:"routers"`
}

// Bounds of the search: routers on the way, and tries of each.
const (
	maxRouters = 24
	routeTries = 3
)

func route(ctx context.Context, s host.Session) error {
	var r FindRoute
	if err := s.Recv(&r); err != nil {
		return err
	}
	found, err := findRoute(ctx, r)
	if err != nil {
		return fmt.Errorf("find the route to %s: %w", r.To, err)
	}
	return s.Send(found)
}
