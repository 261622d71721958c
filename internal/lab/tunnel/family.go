// Package tunnel lays paths that carry traffic between two nodes: one file per kind. The nodes generate keys
// that never leave them, except public ones; what both must share travels as host.Secret.
package tunnel

import (
	"context"
	"net/netip"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// End is one end of a tunnel.
type End struct {
	Node      string
	Agent     host.Agent
	Outer     netip.Addr     // underlay address
	Inner     []netip.Prefix // addresses of the tunnel device
	Routes    []netip.Prefix // networks behind the other end
	Agentless bool           // Agent comes from Agentless
}

// Spec describes the wanted tunnel.
type Spec struct {
	Device string // name of the device on both ends
	MTU    int    // inner; 0 = the kind's default
	Port   int    // outer UDP port of both ends
	Queue  int    // packets that each end's device queues for its process; 0 = the kind's default
}

// Tunnel is a kind of tunnel.
type Tunnel interface {
	Name() string
	Check(ctx context.Context, near, far End) check.Answer
	// Up lays the tunnel and returns once it carries packets. Down takes the path down; so does the end of
	// either agent.
	Up(ctx context.Context, near, far End, s Spec) (Path, error)
	// Serve is the node side: it holds one end of the tunnel until its session ends.
	Serve(ctx context.Context, s host.Session) error
}

// Burden is implemented by kinds of tunnel that slow down packets outside them: they must be down while other
// paths are measured.
type Burden interface{ Burdens() bool }

// Path is a tunnel that is up.
type Path interface {
	MTU() int
	// Devices returns those of near and far: the tunnel's or, if it has none, those by which its packets
	// leave.
	Devices() []string
	// Counters reads the counters. Under load it waits until ctx ends, because a node may be too busy to
	// answer.
	Counters(ctx context.Context, underLoad bool) (Counters, error)
	// Down is idempotent.
	Down(ctx context.Context) error
}

// Counters holds the tunnel's own counters, at the near end.
type Counters struct {
	Sent, Received uint64 // bytes of carried packets
	Handshake      int64  // age of the last handshake in ns, -1 = none
	Implementation string // "kernel", "userspace"
	Counted        string // what was counted: a device, or a description of an association
}
