// Package tunnel sets up tunnels between two nodes. Each node generates its own private keys, which never
// leave the node. A shared secret is transmitted as a host.Secret.
package tunnel

import (
	"context"
	"net/netip"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// End describes one end of a tunnel.
type End struct {
	Node      string
	Agent     host.Agent
	Outer     netip.Addr     // address in the underlay
	Inner     []netip.Prefix // addresses of the tunnel's device
	Routes    []netip.Prefix // networks behind the other end
	Agentless bool           // whether Agent was returned by Agentless
}

// Spec describes a tunnel to set up.
type Spec struct {
	Device string `json:"device,omitempty"` // name of the device at both ends
	MTU    int    `json:"mtu,omitempty"`    // inner MTU in bytes; 0 means the default of the kind
	Port   int    `json:"port,omitempty"`   // outer UDP port at both ends
	// Queue is the queue length of each end's TUN device in packets. 0 means the default of the kind.
	Queue int `json:"queue,omitempty"`
}

// A Tunnel is a kind of tunnel.
type Tunnel interface {
	Name() string
	Check(ctx context.Context, near, far End) check.Answer
	// Up sets up the tunnel, and returns once packets pass in both directions. The tunnel exists until Down
	// is called or the agent of either end is closed.
	Up(ctx context.Context, near, far End, s Spec) (Path, error)
	// Serve runs on a node. It sets up one end of the tunnel and keeps it until the session ends.
	Serve(ctx context.Context, s host.Session) error
}

// Burden is implemented by kinds of tunnels that slow down packets outside the tunnel. Such a tunnel must be
// down while other paths are measured.
type Burden interface{ Burdens() bool }

// A Path is a tunnel that has been set up.
type Path interface {
	MTU() int
	// Devices returns the device of the near end and that of the far end. If the kind has no devices, it
	// returns the outgoing devices.
	Devices() []string
	// Counters reads the counters. If underLoad is set, it waits for the reply until ctx ends, because a node
	// may be busy.
	Counters(ctx context.Context, underLoad bool) (Counters, error)
	// Down removes the tunnel. It is idempotent.
	Down(ctx context.Context) error
}

// Counters holds the counters of a tunnel at its near end.
type Counters struct {
	Sent, Received uint64 // bytes of inner packets
	Handshake      int64  // age of the last handshake in ns, or -1 if there was no handshake
	Implementation string // "kernel" or "userspace"
	Counted        string // device or security association whose counters are in Sent and Received
}
