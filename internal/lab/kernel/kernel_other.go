//go:build !linux

package kernel

import (
	"net"
	"net/netip"

	"github.com/chokepoint-lab/chokepoint/internal/qdisc"
)

func Up(dev string) error                                         { return ErrUnsupported }
func LoopbackUp() error                                           { return ErrUnsupported }
func DeleteLink(dev string) error                                 { return ErrUnsupported }
func SetMTU(dev string, mtu int) error                            { return ErrUnsupported }
func MTU(dev string) (int, error)                                 { return 0, ErrUnsupported }
func SetTxQueueLen(dev string, packets int) error                 { return ErrUnsupported }
func TxQueueLen(dev string) (int, error)                          { return 0, ErrUnsupported }
func Exists(dev string) (bool, error)                             { return false, ErrUnsupported }
func DeviceOf(mac net.HardwareAddr) (string, error)               { return "", ErrUnsupported }
func Rename(dev, name string) error                               { return ErrUnsupported }
func Addresses(dev string) ([]netip.Prefix, error)                { return nil, ErrUnsupported }
func AddAddress(dev string, p netip.Prefix) error                 { return ErrUnsupported }
func DelAddress(dev string, p netip.Prefix) error                 { return ErrUnsupported }
func AddRoute(dst netip.Prefix, via netip.Addr, dev string) error { return ErrUnsupported }
func ProbePPPoE() error                                           { return ErrUnsupported }
func ForgetPathMTUs6() error                                      { return ErrUnsupported }
func AddRouteFrom(dst netip.Prefix, dev string, src netip.Addr, mtu int) error {
	return ErrUnsupported
}
func DelRoute(dst netip.Prefix, via netip.Addr, dev string) error { return ErrUnsupported }
func Counters(dev string) (LinkCounters, error) {
	return LinkCounters{}, ErrUnsupported
}

// NICStats exists on Linux alone.
type NICStats struct{}

func (n *NICStats) Read(dev string) ([]string, []uint64, error) { return nil, nil, ErrUnsupported }
func OpenNICStats() (*NICStats, error)                          { return nil, ErrUnsupported }
func (n *NICStats) Close() error                                { return nil }
func PauseFrames(dev string) (Pause, error)                     { return Pause{}, ErrUnsupported }
func Features(dev string) (map[string]bool, error)              { return nil, ErrUnsupported }
func FixedFeatures(dev string) (map[string]bool, error)         { return nil, ErrUnsupported }
func SetFeatures(dev string, want map[string]bool) error        { return ErrUnsupported }
func QueueAt(dev string, want qdisc.Queue) (qdisc.Queue, error) { return qdisc.Queue{}, ErrUnsupported }
func SetRootQueue(dev string, want qdisc.Queue) error           { return ErrUnsupported }
func OnProbeLink(try func(dev string) error) error              { return ErrUnsupported }
func ReadNAT() (NATMode, error)                                 { return "", ErrUnsupported }
func SetNAT(n NAT) error                                        { return ErrUnsupported }
func VLAN(dev string) (int, error)                              { return 0, ErrUnsupported }
func SetVLAN(dev string, id int) error                          { return ErrUnsupported }
func AddWireGuard(dev string, mtu int) error                    { return ErrUnsupported }
func ProbeWireGuard() error                                     { return ErrUnsupported }
func ConfigureWireGuard(dev string, w WireGuard) error          { return ErrUnsupported }
func ReadWireGuard(dev string) (WireGuardStats, error)          { return WireGuardStats{}, ErrUnsupported }
func ProbeNAT(mode NATMode) error                               { return ErrUnsupported }
func SpreadQueues(dev string) error                             { return ErrUnsupported }
func TxQueues(dev string) (int, error)                          { return 0, ErrUnsupported }
func AddXfrm(dev string, id uint32, mtu int) error              { return ErrUnsupported }
func ProbeESP(c ESPCipher, outer6, routed bool) error           { return ErrUnsupported }
func AddESP(e ESP) error                                        { return ErrUnsupported }
func RemoveESP(e ESP) error                                     { return ErrUnsupported }
func ReadESP(e ESP) (ESPStats, error)                           { return ESPStats{}, ErrUnsupported }
func Shaper(dev string) (rate, burst uint64, err error)         { return 0, 0, ErrUnsupported }
func SetShaper(dev string, rate, burst uint64) error            { return ErrUnsupported }
func ClearShaper(dev string) error                              { return ErrUnsupported }
func Policer(dev string) (uint64, error)                        { return 0, ErrUnsupported }
func SetPolicer(dev string, rate, burst uint64) error           { return ErrUnsupported }
func IdlePolicies() (int, error)                                { return 0, ErrUnsupported }
func SetIdlePolicies(n int) error                               { return ErrUnsupported }
func IdleTunnels() (int, error)                                 { return 0, ErrUnsupported }
func SetIdleTunnels(n int) error                                { return ErrUnsupported }

// Table exists on Linux only.
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

// WireGuardReader exists on Linux only.
type WireGuardReader struct{}

func OpenWireGuard() (*WireGuardReader, error)                   { return nil, ErrUnsupported }
func (*WireGuardReader) Close() error                            { return nil }
func (*WireGuardReader) Peers([]string) ([]WireGuardPeer, error) { return nil, ErrUnsupported }

// WayTo looks up the route to an address.
func WayTo(to netip.Addr) (Way, error) { return wayBySocket(to) }
