// Package driver drives routers that have no room for an agent, by their own commands through a host: one
// file per operating system. A node with an agent needs none of it.
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

// Driver knows a router's operating system. Read and Apply speak the canonical states of package knob, so
// that a plan means the same everywhere. Read returns what the setting's value would take the place of, which
// may be a part of what the setting is about; Apply of that restores the router. Settings that the system
// lacks are host.ErrUnsupported. Implementations hold no state and are safe for concurrent use.
type Driver interface {
	Name() string
	Check(ctx context.Context, h host.Host) check.Answer
	Read(ctx context.Context, h host.Host, s record.Setting) (string, error)
	Apply(ctx context.Context, h host.Host, s record.Setting) error
}

// Counting drivers read the counters of a router's devices, which prove that traffic passed it.
type Counting interface {
	Counters(ctx context.Context, h host.Host, devices []string) (map[string]kernel.LinkCounters, error)
}

// Routing drivers say how packets to some addresses leave a router, in the order asked, a way without a
// device where no route leads there; and which addresses are the router's own.
type Routing interface {
	Ways(ctx context.Context, h host.Host, to []netip.Addr) (ways []kernel.Way, own []netip.Addr, err error)
}

// Describing drivers tell what a router is: facts by the names that package probe gives those of a node with
// an agent.
type Describing interface {
	Facts(ctx context.Context, h host.Host) (map[string]string, error)
}

// Inventorying drivers read what a router has in the path of packets: devices, queues, packet filter, taps.
type Inventorying interface {
	Inventory(ctx context.Context, h host.Host) (*record.Inventory, error)
}

// Advising drivers say what an owner does so that a router translates no addresses, which no driver does for
// him: what sends the answers back to the client could be gone by it.
type Advising interface {
	WithoutNAT() string
}

// Restricted drivers say by a router's facts what it forbids us itself and how its owner allows that.
type Restricted interface {
	Restrictions(facts map[string]string) string
}

// ByHand drivers say what an owner types so that a router holds the end of a tunnel of a kind, "" where they
// know nothing.
type ByHand interface {
	TunnelByHand(kind string, own, other netip.Prefix) string
}

// Tunneling drivers make an end of a WireGuard tunnel, by the setting knob.TunnelEnd of a device. The router
// makes the private key itself, and nobody asks for it.
type Tunneling interface {
	// TunnelKey reads the public key of a device that was made.
	TunnelKey(ctx context.Context, h host.Host, device string) (string, error)
	// TunnelMoved reads what a device has carried, and the age of its peer's last handshake in ns, -1 = none.
	TunnelMoved(ctx context.Context, h host.Host, device string) (c kernel.LinkCounters, handshake int64,
		err error)
	// Ping sends a packet to an address. Whether it is answered does not matter.
	Ping(ctx context.Context, h host.Host, to netip.Addr) error
}

// WithoutNAT returns the advice of a node's driver; a node without one has an agent, and Linux.
func WithoutNAT(by Driver) string {
	if by == nil {
		by = Linux{}
	}

	if a, ok := by.(Advising); ok {
		return a.WithoutNAT()
	}
	return "switch its address translation off"
}

// Guarded drivers can leave a guard on a router: a process that undoes settings there when nobody has kept
// in touch with it for a time.
type Guarded interface {
	// Free fails where another controller has set something, or is about to. Guards of these names are our
	// own.
	Free(ctx context.Context, h host.Host, own ...string) error
	// Guard starts one, or gives the one of that name, which is of this driver, others to undo. It is there,
	// and has what it needs, when Guard returns.
	Guard(ctx context.Context, h host.Host, name string, undo []record.Setting,
		silence time.Duration) (string, error)
	// Touch keeps in touch with the guard of a name. An error says that it is not there any more.
	Touch(ctx context.Context, h host.Host, name string) error
	// Dismiss ends it, and undoes nothing.
	Dismiss(ctx context.Context, h host.Host, name string) error
}

// Sampling is implemented by drivers that watch a router while traffic flows. Watch starts one process
// there, before load; it samples every interval until Close, keeps the samples on the router, and hands them
// over only when it is asked, after load. Where a router cannot keep them, it prints them to one session.
type Sampling interface {
	Watch(ctx context.Context, h host.Host, every time.Duration) (Watch, error)
}

// Silence bounds how long a process that samples goes on without word from its controller, as an agent does.
const Silence = 45 * time.Second

// Watch is such a process. Its samples are the record series that probes have, at the watch's rate.
type Watch interface {
	// Keep keeps in touch with the process, which ends by itself after Silence, or as soon as it sees that
	// its controller is gone. An error says that it has ended.
	Keep(ctx context.Context) error
	// Collect hands over what was sampled from…to (the controller's CLOCK_MONOTONIC) and the nearest sample
	// outside on either side.
	Collect(ctx context.Context, from, to int64) (record.NodeData, error)
	// Close ends the process and removes what it kept there.
	Close(ctx context.Context) error
}

// All lists the drivers, in the order in which a router without an agent is asked over ssh whether it is
// theirs: what is made of Linux is ahead of it.
func All() []Driver { return []Driver{RouterOS{}, FreeBSD{}, OpenWrt{}, Linux{}} }

// Permit returns a driver with the permission to set kernel settings of a router.
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
