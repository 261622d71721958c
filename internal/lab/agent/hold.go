package agent

import (
	"context"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

// VerbHold adds addresses and routes to a machine until the session ends. These separate the path through a
// tunnel from the path outside it. The handler runs in a child process, which removes the addresses and
// routes even if the agent is killed.
const VerbHold = "path/hold"

// Hold lists addresses and routes to add. Addresses and routes that the machine already has are neither added
// nor removed.
type Hold struct {
	Addresses []PortAddress `json:"addresses,omitempty"`
	Routes    []Route       `json:"routes,omitempty"`
}

func hold(_ context.Context, s host.Session, h Hold) (err error) {
	var undo host.Undoing
	defer func() { undo.Run(&err) }()
	for _, a := range h.Addresses {
		has, err := kernel.Addresses(a.Port)
		if err == nil && !slices.Contains(has, a.Address) {
			undo.Add(func() error { return kernel.DelAddress(a.Port, a.Address) })
			err = kernel.AddAddress(a.Port, a.Address)
		}

		if err != nil {
			return err
		}
	}

	for _, r := range h.Routes {
		w, err := kernel.WayTo(r.To.Addr())
		if err == nil && w.Device == r.Dev && w.Via == r.Via {
			continue
		}

		undo.Add(func() error { return kernel.DelRoute(r.To, r.Via, r.Dev) })
		if err := kernel.AddRoute(r.To, r.Via, r.Dev); err != nil {
			return err
		}
	}

	if err := s.Send(struct{}{}); err != nil {
		return host.Quiet(err)
	}

	return host.Quiet(s.Recv(nil))
}
