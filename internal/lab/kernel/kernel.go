// Package kernel speaks to the kernel of the process' own network namespace: links, addresses, routes,
// queues, offloads, packet filter, settings. It alone imports netlink, ethtool, nftables and wgctrl.
// It keeps nothing and undoes nothing; where an operating system or a kernel lacks something, the error
// matches ErrUnsupported.
package kernel

import (
	"errors"
	"net"
	"net/netip"
)

// ErrUnsupported means conclusively impossible on this kernel.
var ErrUnsupported = errors.New("not supported by this kernel")

// ErrAbsent means that the thing named does not exist.
var ErrAbsent = errors.New("does not exist")

// UDPSegmentation is the offload that a tap has only if the program at its other end takes such packets,
// which its flags do not tell.
const UDPSegmentation = "tx-udp-segmentation"

// VethEnd is one end of a virtual Ethernet link. PID names the network namespace by a process in it; 0 is
// the caller's own. MTU 0 is the kernel's default.
type VethEnd struct {
	Name string
	PID  int
	MTU  int
}

// Hop is where packets go first: the device they leave by, and the neighbour there.
type Hop struct {
	Device   string
	Index    int
	Kind     string // such as "veth"; "device" is any without a name of its own
	RxQueues int
	Source   net.HardwareAddr // the device's own
	Addr     netip.Addr       // of the neighbour
	MAC      net.HardwareAddr // nil = not known now
}

// LinkCounters are a device's counters since it was made, from struct rtnl_link_stats64.
type LinkCounters struct {
	RxBytes, RxPackets, RxErrors, RxDropped uint64
	TxBytes, TxPackets, TxErrors, TxDropped uint64
}

// Pause is what a device has agreed on about pause frames (IEEE 802.3x).
type Pause struct{ Autoneg, Receive, Transmit bool }
