// Package driver controls routers without an agent through their own commands. Nodes with an agent do not use
// it.
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

// A Driver controls routers that run one operating system. Read and Apply use the canonical states of package
// knob, so plans do not depend on the system. Read returns the state that s.Value would replace, which may be
// only a part of the setting; applying this state restores the router. If the system lacks a setting, the
// error is host.ErrUnsupported. Implementations have no state and are safe for concurrent use.
type Driver interface {
	Name() string
	Check(ctx context.Context, h host.Host) check.Answer
	Read(ctx context.Context, h host.Host, s record.Setting) (string, error)
	Apply(ctx context.Context, h host.Host, s record.Setting) error
}

// Counting is implemented by drivers that can read the counters of a router's devices. The counters prove
// that traffic passed through the router.
type Counting interface {
	Counters(ctx context.Context, h host.Host, devices []string) (map[string]kernel.LinkCounters, error)
}

// Routing is implemented by drivers that can look up routes. Ways returns the router's own addresses and its
// routes to the given addresses, in the same order. A route that does not exist has no device.
type Routing interface {
	Ways(ctx context.Context, h host.Host, to []netip.Addr) (ways []kernel.Way, own []netip.Addr, err error)
}

// Describing is implemented by drivers that can read facts about a router. The facts have the names that
// package probe uses for nodes with an agent.
type Describing interface {
	Facts(ctx context.Context, h host.Host) (map[string]string, error)
}

// Inventorying is implemented by drivers that can list the devices, queues, packet filters and taps through
// which a packet may pass on a router.
type Inventorying interface {
	Inventory(ctx context.Context, h host.Host) (*record.Inventory, error)
}

// Advising is implemented by drivers that know how the owner turns off a router's address translation. No
// driver turns it off itself, because that could cut the return path to the client.
type Advising interface {
	WithoutNAT() string
}

// Restricted is implemented by drivers that can derive from a router's facts what the router forbids and how
// its owner can allow it.
type Restricted interface {
	Restrictions(facts map[string]string) string
}

// ByHand is implemented by drivers that know the commands with which an owner sets up the router's end of a
// tunnel. TunnelByHand returns "" for kinds of tunnels for which the driver knows no commands.
type ByHand interface {
	TunnelByHand(kind string, own, other netip.Prefix) string
}

// Tunneling is implemented by drivers that can set up an end of a WireGuard tunnel. A state of knob.TunnelEnd
// for a device describes the end. The router generates the private key, and the driver never reads it.
type Tunneling interface {
	// TunnelKey returns a device's public key.
	TunnelKey(ctx context.Context, h host.Host, device string) (string, error)
	// TunnelMoved returns the counters of a device and the age of its peer's last handshake in ns, or -1 if
	// there was no handshake.
	TunnelMoved(ctx context.Context, h host.Host, device string) (c kernel.LinkCounters, handshake int64,
		err error)
	// Ping sends a packet to an address. It does not wait for an answer.
	Ping(ctx context.Context, h host.Host, to netip.Addr) error
}

// WithoutNAT returns how the owner of a node turns off its address translation. by is the driver that
// controls the node. If by is nil, the node has an agent and therefore runs Linux.
func WithoutNAT(by Driver) string {
	if by == nil {
		by = Linux{}
	}

	if a, ok := by.(Advising); ok {
		return a.WithoutNAT()
	}
	return "switch its address translation off"
}

// Guarded is implemented by drivers that can install a guard on a router. A guard is a process or script that
// undoes settings when Touch has not been called for some time.
type Guarded interface {
	// Free returns an error if another controller has changed settings of the router or is about to do so.
	// own lists the names of our guards.
	Free(ctx context.Context, h host.Host, own ...string) error
	// Guard installs a guard. If name is not empty, Guard instead replaces the settings that the existing
	// guard of this name undoes. Guard returns the name of the guard after the guard has started and received
	// the settings. The guard undoes them after Touch has not been called for the duration silence.
	Guard(ctx context.Context, h host.Host, name string, undo []record.Setting,
		silence time.Duration) (string, error)
	// Touch resets a guard's timeout. It returns an error if the guard no longer exists.
	Touch(ctx context.Context, h host.Host, name string) error
	// Dismiss removes a guard without undoing anything.
	Dismiss(ctx context.Context, h host.Host, name string) error
}

// Sampling is implemented by drivers that can sample a router while traffic flows. Watch starts one process
// on the router before the load. The process takes a sample at every interval until Close, and stores it on
// the router. The samples are fetched only on request, after the load. If the router cannot store samples,
// the process sends them to a session as it takes them.
type Sampling interface {
	Watch(ctx context.Context, h host.Host, every time.Duration) (Watch, error)
}

// Silence is the time after which a sampling process ends if its controller does not call Keep. It equals
// agent.Silence.
const Silence = 45 * time.Second

// A Watch is a sampling process on a router. It yields the same series as the probes, at the interval given
// to Sampling.Watch.
type Watch interface {
	// Keep prevents the process from ending after Silence, and returns an error if the process has ended. The
	// process also ends when it notices that its controller is gone.
	Keep(ctx context.Context) error
	// Collect returns the samples between from and to, which are times of the controller's CLOCK_MONOTONIC in
	// ns, and the nearest sample before and after them.
	Collect(ctx context.Context, from, to int64) (record.NodeData, error)
	// Close ends the process and removes its files.
	Close(ctx context.Context) error
}

// All returns the drivers in the order in which they are tried. Drivers for systems based on Linux come
// before Linux.
func All() []Driver { return []Driver{RouterOS{}, FreeBSD{}, OpenWrt{}, Linux{}} }

// Permit returns a copy of d that has permission to change the given kernel settings.
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

// Named returns the driver with the given name.
func Named(name string) (Driver, bool) {
	for _, d := range All() {
		if d.Name() == name {
			return d, true
		}
	}
	return nil, false
}
