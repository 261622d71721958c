// Package tunnel sets up tunnels between two nodes, in one file per kind. The nodes generate private keys,
// which never leave them; a shared secret is transmitted as a host.Secret.
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
	Inner     []netip.Prefix // addresses of the tunnel's device
	Routes    []netip.Prefix // networks behind the other end
	Agentless bool           // Agent was returned by Agentless
}

// Spec describes a tunnel to set up.
type Spec struct {
	Device string // device name on both ends
	MTU    int    // inner MTU in bytes; 0 = the kind's default
	Port   int    // outer UDP port of both ends
	Queue  int    // queue length of each end's TUN device in packets; 0 = the kind's default
}

// Tunnel is a kind of tunnel.
type Tunnel interface {
	Name() string
	Check(ctx context.Context, near, far End) check.Answer
	// Up sets up the tunnel and returns once packets pass in both directions. The tunnel lives until Down is
	// called or an agent of either end closes.
	Up(ctx context.Context, near, far End, s Spec) (Path, error)
	// Serve is the node side: it sets up one end of the tunnel and keeps it until the session ends.
	Serve(ctx context.Context, s host.Session) error
}

// Burden is implemented by kinds of tunnel that slow down packets outside of the tunnel. They must be down
// while other paths are measured.
type Burden interface{ Burdens() bool }

// Path is an established tunnel.
type Path interface {
	MTU() int
	// Devices returns the device of the near and of the far end. If the kind has no device, these are the
	// outgoing devices.
	Devices() []string
	// Counters reads the counters. With underLoad it waits for an answer until ctx ends, because a node may
	// be busy.
	Counters(ctx context.Context, underLoad bool) (Counters, error)
	// Down removes the tunnel. It is idempotent.
	Down(ctx context.Context) error
}

// Counters are the tunnel's counters at the near end.
type Counters struct {
	Sent, Received uint64 // bytes of inner packets
	Handshake      int64  // age of the last handshake in ns, -1 if there was none
	Implementation string // "kernel" or "userspace"
	Counted        string // device or security association that Sent and Received belong to
}
