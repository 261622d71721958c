//go:build !linux

package kernel

import (
	"net"
	"net/netip"

	"github.com/chokepoint-lab/chokepoint/internal/qdisc"
)

// These functions access a device.
var (
	Up, DeleteLink, SpreadQueues, ClearShaper    = act, act, act, act
	MTU, TxQueueLen, VLAN, TxQueues              = read[int], read[int], read[int], read[int]
	SetMTU, SetTxQueueLen, SetVLAN, AddWireGuard = set[int], set[int], set[int], set[int]
	Features, FixedFeatures                      = read[map[string]bool], read[map[string]bool]
	SetFeatures                                  = set[map[string]bool]
	Addresses, AddAddress, DelAddress            = read[[]netip.Prefix], set[netip.Prefix], set[netip.Prefix]
	Exists, Counters, PauseFrames, Policer       = read[bool], read[LinkCounters], read[Pause], read[uint64]
	ReadWireGuard, ConfigureWireGuard            = read[WireGuardStats], set[WireGuard]
	Rename, SetRootQueue                         = set[string], set[qdisc.Queue]
)

func act(string) error                       { return ErrUnsupported }
func read[T any](string) (none T, err error) { return none, ErrUnsupported }
func set[T any](string, T) error             { return ErrUnsupported }

// These functions access the machine.
var (
	IdlePolicies, IdleTunnels       = count, count
	SetIdlePolicies, SetIdleTunnels = setCount, setCount
)

func count() (int, error)  { return 0, ErrUnsupported }
func setCount(n int) error { return ErrUnsupported }

func DeviceOf(mac net.HardwareAddr) (string, error)               { return "", ErrUnsupported }
func AddRoute(dst netip.Prefix, via netip.Addr, dev string) error { return ErrUnsupported }
func ProbePPPoE() error                                           { return ErrUnsupported }
func ForgetPathMTUs6() error                                      { return ErrUnsupported }
func AddRouteFrom(dst netip.Prefix, dev string, src netip.Addr, mtu int) error {
	return ErrUnsupported
}
func DelRoute(dst netip.Prefix, via netip.Addr, dev string) error { return ErrUnsupported }

// NICStats is implemented only on Linux.
type NICStats struct{}

func (n *NICStats) Read(dev string) ([]string, []uint64, error) { return nil, nil, ErrUnsupported }
func OpenNICStats() (*NICStats, error)                          { return nil, ErrUnsupported }
func (n *NICStats) Close() error                                { return nil }
func QueueAt(dev string, want qdisc.Queue) (qdisc.Queue, error) { return qdisc.Queue{}, ErrUnsupported }
func OnProbeLink(try func(dev string) error) error              { return ErrUnsupported }
func ReadNAT() (NATMode, error)                                 { return "", ErrUnsupported }
func SetNAT(n NAT) error                                        { return ErrUnsupported }
func ProbeWireGuard() error                                     { return ErrUnsupported }
func ProbeNAT(mode NATMode) error                               { return ErrUnsupported }
func AddXfrm(dev string, id uint32, mtu int) error              { return ErrUnsupported }
func ProbeESP(c ESPCipher, outer6, routed bool) error           { return ErrUnsupported }
func AddESP(e ESP) error                                        { return ErrUnsupported }
func RemoveESP(e ESP) error                                     { return ErrUnsupported }
func ReadESP(e ESP) (ESPStats, error)                           { return ESPStats{}, ErrUnsupported }
func Shaper(dev string) (rate, burst uint64, err error)         { return 0, 0, ErrUnsupported }
func SetShaper(dev string, rate, burst uint64) error            { return ErrUnsupported }
func SetPolicer(dev string, rate, burst uint64) error           { return ErrUnsupported }

// Table is implemented only on Linux.
type Table[T any] struct{}

func (Table[T]) Read() (none T, err error) { return none, ErrUnsupported }
func (Table[T]) Set(T) error               { return ErrUnsupported }
func (Table[T]) Probe(T) error             { return ErrUnsupported }

var (
	FirewallRules Table[Firewall]
	Flowtables    Table[Flowtable]
	MSSClamp      Table[int]
	Silence       Table[bool]
)

// WireGuardReader is implemented only on Linux.
type WireGuardReader struct{}

func OpenWireGuard() (*WireGuardReader, error)                   { return nil, ErrUnsupported }
func (*WireGuardReader) Close() error                            { return nil }
func (*WireGuardReader) Peers([]string) ([]WireGuardPeer, error) { return nil, ErrUnsupported }

// WayTo looks up the route to an address.
func WayTo(to netip.Addr) (Way, error) { return wayBySocket(to) }
