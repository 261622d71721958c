// Package driver controls routers without an agent by their own commands, in one file per operating system.
// Nodes with an agent do not use it.
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
// that plans do not depend on the system. Read returns the state that s.Value would replace, which may be
// only a part of the setting; applying it restores the router. If the system lacks a setting, the error is
// host.ErrUnsupported. Implementations have no state and are safe for concurrent use.
type Driver interface {
	Name() string
	Check(ctx context.Context, h host.Host) check.Answer
	Read(ctx context.Context, h host.Host, s record.Setting) (string, error)
	Apply(ctx context.Context, h host.Host, s record.Setting) error
}

// Counting is implemented by drivers that can read the counters of a router's devices, which prove that
// traffic passed through it.
type Counting interface {
	Counters(ctx context.Context, h host.Host, devices []string) (map[string]kernel.LinkCounters, error)
}

// Routing is implemented by drivers that can look up routes. Ways returns the routes to the given addresses,
// in the same order and without a device if there is no route, and the router's own addresses.
type Routing interface {
	Ways(ctx context.Context, h host.Host, to []netip.Addr) (ways []kernel.Way, own []netip.Addr, err error)
}

// Describing is implemented by drivers that can read facts about a router. Their names are those that package
// probe uses for nodes with an agent.
type Describing interface {
	Facts(ctx context.Context, h host.Host) (map[string]string, error)
}

// Inventorying is implemented by drivers that can list what a router has on the path of packets: devices,
// queues, packet filter and taps.
type Inventorying interface {
	Inventory(ctx context.Context, h host.Host) (*record.Inventory, error)
}

// Advising is implemented by drivers that can explain how the owner turns off a router's address translation.
// No driver does this itself, because it could cut the return path to the client.
type Advising interface {
	WithoutNAT() string
}

// Restricted is implemented by drivers that can derive from a router's facts what the router forbids, and how
// its owner can permit it.
type Restricted interface {
	Restrictions(facts map[string]string) string
}

// ByHand is implemented by drivers that know the commands by which an owner sets up the router's end of a
// kind of tunnel. TunnelByHand returns "" for other kinds.
type ByHand interface {
	TunnelByHand(kind string, own, other netip.Prefix) string
}

// Tunneling is implemented by drivers that can set up an end of a WireGuard tunnel as knob.TunnelEnd of a
// device. The router generates the private key, which is never read.
type Tunneling interface {
	// TunnelKey returns a device's public key.
	TunnelKey(ctx context.Context, h host.Host, device string) (string, error)
	// TunnelMoved returns a device's counters and the age of its peer's last handshake in ns, -1 if there was
	// none.
	TunnelMoved(ctx context.Context, h host.Host, device string) (c kernel.LinkCounters, handshake int64,
		err error)
	// Ping sends a packet to an address and ignores whether an answer arrives.
	Ping(ctx context.Context, h host.Host, to netip.Addr) error
}

// WithoutNAT returns the advice of a node's driver. If by is nil, the node has an agent and thus runs Linux.
func WithoutNAT(by Driver) string {
	if by == nil {
		by = Linux{}
	}

	if a, ok := by.(Advising); ok {
		return a.WithoutNAT()
	}
	return "switch its address translation off"
}

// Guarded is implemented by drivers that can install a guard on a router: a process or script that undoes
// settings when it has not been touched for some time.
type Guarded interface {
	// Free returns an error if another controller has changed settings or is about to. own are the names of
	// our guards.
	Free(ctx context.Context, h host.Host, own ...string) error
	// Guard installs a guard or, given the name of an existing one, replaces its settings to undo. It returns
	// the guard's name once the guard runs and has the settings. silence is the time without Touch after
	// which the guard undoes them.
	Guard(ctx context.Context, h host.Host, name string, undo []record.Setting,
		silence time.Duration) (string, error)
	// Touch resets a guard's timeout. It returns an error if the guard no longer exists.
	Touch(ctx context.Context, h host.Host, name string) error
	// Dismiss removes a guard without undoing anything.
	Dismiss(ctx context.Context, h host.Host, name string) error
}

// Sampling is implemented by drivers that can sample a router while traffic flows. Watch starts one process
// on the router, before load. It takes a sample at every interval until Close and stores it on the router;
// samples are fetched only on request, after load. If the router cannot store samples, they are streamed to a
// session.
type Sampling interface {
	Watch(ctx context.Context, h host.Host, every time.Duration) (Watch, error)
}

// Silence is the time after which a sampling process ends if its controller does not keep it, as for an
// agent.
const Silence = 45 * time.Second

// Watch is a sampling process. It yields the same series as the probes, at the interval of the watch.
type Watch interface {
	// Keep prevents the process from ending after Silence. It returns an error if the process has ended. The
	// process also ends when it notices that its controller is gone.
	Keep(ctx context.Context) error
	// Collect returns the samples between from and to (the controller's CLOCK_MONOTONIC, in ns) and the
	// nearest sample outside on each side.
	Collect(ctx context.Context, from, to int64) (record.NodeData, error)
	// Close ends the process and removes its files.
	Close(ctx context.Context) error
}

// All returns the drivers in the order in which they are tried: systems based on Linux precede Linux.
func All() []Driver { return []Driver{RouterOS{}, FreeBSD{}, OpenWrt{}, Linux{}} }

// Permit returns d with a permission for kernel settings.
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

// Named returns the driver of that name.
func Named(name string) (Driver, bool) {
	for _, d := range All() {
		if d.Name() == name {
			return d, true
		}
	}
	return nil, false
}
