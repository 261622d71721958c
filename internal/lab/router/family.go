// Package router drives operating systems under test that have no room for an agent, by their own commands
// through a host: one file per system. A Linux node with an agent needs none of it.
package router

import (
	"context"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// System is a router's operating system. Read and Apply speak the canonical states of package knob, so that
// a plan means the same everywhere; Apply of what Read returned restores the router. Settings that the
// system lacks are host.ErrUnsupported.
type System interface {
	Name() string
	Check(ctx context.Context, h host.Host) check.Answer
	Read(ctx context.Context, h host.Host, s record.Setting) (string, error)
	Apply(ctx context.Context, h host.Host, s record.Setting) error
}
