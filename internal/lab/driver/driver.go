// Package driver drives routers that have no room for an agent by their own commands, through a host: one
// file per operating system. A node with an agent does not use it.
package driver

import (
	"context"
	"net/netip"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Driver supports a router's operating system. Read and Apply use the canonical states of package knob, so
// that a plan means the same everywhere. Read returns the state that a value would replace, which may be a
// part of the setting; applying it restores the router. A setting that the system lacks fails with
// host.ErrUnsupported. Implementations hold no state and are safe for concurrent use.
type Driver interface {
	Name() string
	Check(ctx context.Context, h host.Host) check.Answer
	Read(ctx context.Context, h host.Host, s record.Setting) (string, error)
	Apply(ctx context.Context, h host.Host, s record.Setting) error
}

// Counting drivers read the counters of a router's devices, which prove that traffic passed through it.
type Counting interface {
	Counters(ctx context.Context, h host.Host, devices []string) (map[string]kernel.LinkCounters, error)
}

// Routing drivers report how a router routes packets to some addresses, in the order requested, without a
// device if there is no route, and which addresses are the router's own.
type Routing interface {
	Ways(ctx context.Context, h host.Host, to []netip.Addr) (ways []kernel.Way, own []netip.Addr, err error)
}

// Describing drivers report facts about a router, by the names that package probe uses for a node with an
// agent.
type Describing interface {
	Facts(ctx context.Context, h host.Host) (map[string]string, error)
}

// Inventorying drivers read what a router has on the path of packets: devices, queues, packet filter, taps.
type Inventorying interface {
	Inventory(ctx context.Context, h host.Host) (*record.Inventory, error)
}

// Advising drivers return the steps by which an owner turns off a router's address translation. No driver
// takes these steps itself, because they might cut the return path to the client.
type Advising interface {
	WithoutNAT() string
}

// Restricted drivers report, from a router's facts, what the router forbids us and how its owner permits it.
type Restricted interface {
	Restrictions(facts map[string]string) string
}

// ByHand drivers return the commands with which an owner sets up the router's end of a kind of tunnel, "" if
// they know none.
type ByHand interface {
	TunnelByHand(kind string, own, other netip.Prefix) string
}

// Tunneling drivers make an end of a WireGuard tunnel, by the setting knob.TunnelEnd of a device. The router
// generates the private key itself, and nobody reads it.
type Tunneling interface {
	// TunnelKey reads the public key of an existing device.
	TunnelKey(ctx context.Context, h host.Host, device string) (string, error)
	// TunnelMoved reads a device's counters, and the age of its peer's last handshake in ns, -1 = none.
	TunnelMoved(ctx context.Context, h host.Host, device string) (c kernel.LinkCounters, handshake int64,
		err error)
	// Ping sends a packet to an address. Whether an answer comes does not matter.
	Ping(ctx context.Context, h host.Host, to netip.Addr) error
}

// WithoutNAT returns the advice of a node's driver. A node without one has an agent and runs Linux.
func WithoutNAT(by Driver) string {
	if by == nil {
		by = Linux{}
	}

	if a, ok := by.(Advising); ok {
		return a.WithoutNAT()
	}
	return "switch its address translation off"
}

// Guarded drivers can leave a guard on a router: a process that undoes settings there once nobody has kept in
// touch with it for some time.
type Guarded interface {
	// Free fails if another controller has set something, or is about to. Guards with the names own are ours.
	Free(ctx context.Context, h host.Host, own ...string) error
	// Guard starts a guard, or gives the one of that name, which this driver made, other settings to undo.
	// When Guard returns, the guard runs and has all it needs.
	Guard(ctx context.Context, h host.Host, name string, undo []record.Setting,
		silence time.Duration) (string, error)
	// Touch keeps in touch with the guard of a name. It fails if the guard is no longer there.
	Touch(ctx context.Context, h host.Host, name string) error
	// Dismiss ends the guard without undoing anything.
	Dismiss(ctx context.Context, h host.Host, name string) error
}

// Sampling drivers watch a router while traffic flows. Watch starts one process there, before load; it
// samples every interval until Close, keeps the samples on the router, and hands them over only on request,
// after load. If the router cannot keep them, it prints them to one session.
type Sampling interface {
	Watch(ctx context.Context, h host.Host, every time.Duration) (Watch, error)
}

// Silence bounds how long a sampling process continues without hearing from its controller, as for an agent.
const Silence = 45 * time.Second

// Watch is such a process. Its samples form the record series that probes have, at the watch's rate.
type Watch interface {
	// Keep keeps in touch with the process, which ends by itself after Silence, or as soon as it notices that
	// its controller is gone. It returns an error if the process has ended.
	Keep(ctx context.Context) error
	// Collect returns the samples from…to (the controller's CLOCK_MONOTONIC) and the nearest sample outside
	// on either side.
	Collect(ctx context.Context, from, to int64) (record.NodeData, error)
	// Close ends the process and removes its files.
	Close(ctx context.Context) error
}

// All lists the drivers in the order in which they are tried on a router without an agent: systems based on
// Linux come before it.
func All() []Driver { return []Driver{RouterOS{}, FreeBSD{}, OpenWrt{}, Linux{}} }

// Permit returns a driver that may set kernel settings of a router as permitted.
func Permit(d Driver, sysctls knob.Permission) Driver {
	switch d.(type) {
	case Linux:
		return Linux{sysctls}
	case OpenWrt:
		return OpenWrt{Linux{sysctls}}
	case FreeBSD:
		return FreeBSD{sysctls}
	}
	return d
}

// Named finds a driver by its name.
func Named(name string) (Driver, bool) {
	for _, d := range All() {
		if d.Name() == name {
			return d, true
		}
	}
	return nil, false
}
