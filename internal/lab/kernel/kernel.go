// Package kernel accesses the Linux kernel in the network namespace of this process: links, addresses,
// routes, queues, offloads, the packet filter and sysctls. No other package imports netlink, ethtool,
// nftables or wgctrl. The package has no state and undoes nothing. If the operating system or kernel lacks a
// feature, the error wraps ErrUnsupported.
package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// ErrUnsupported reports that this kernel does not support an operation, so a retry is pointless.
var ErrUnsupported = errors.New("not supported by this kernel")

// ErrAbsent reports that no object with the given name exists.
var ErrAbsent = errors.New("does not exist")

// UDPSegmentation is an offload that a tap supports only if the program at its other end accepts unsegmented
// UDP packets. The flags of the tap do not show whether the program does.
const UDPSegmentation = "tx-udp-segmentation"

// VethEnd describes one end of a virtual Ethernet link. PID is a process in the network namespace of the end;
// 0 means the namespace of the caller.
type VethEnd struct {
	Name string
	PID  int
}

// Hop is the first hop of a path: the outgoing device and the neighbour that receives the packets.
type Hop struct {
	Device   string
	Index    int
	Kind     string // such as "veth", or "device" if the kernel reports none
	RxQueues int
	Source   net.HardwareAddr // hardware address of Device
	Addr     netip.Addr       // IP address of the neighbour
	MAC      net.HardwareAddr // hardware address of the neighbour; nil means currently unknown
}

// Way describes how packets to a destination leave a node: the outgoing device, the source address, and the
// gateway. Via is invalid if the destination is on the link.
type Way struct {
	Device string     `json:"device,omitempty"`
	Source netip.Addr `json:"source,omitzero"`
	Via    netip.Addr `json:"via,omitzero"`
}

// Via is a route to a network through a gateway.
type Via struct {
	To      netip.Prefix
	Gateway netip.Addr
}

// LinkCounters holds the counters of a device since it was created, from struct rtnl_link_stats64.
type LinkCounters struct {
	RxBytes, RxPackets, RxDropped uint64
	TxBytes, TxPackets, TxDropped uint64
}

// Link describes a network device. Lower is the device on which it is stacked. Lower is "" if there is none
// or if it is in another namespace.
type Link struct {
	Name, Master, Lower string
	Kind                string // such as "veth", or "" if the kernel reports none
	Index, MTU          int
	Up, Loopback        bool
}

// FilterDump holds the nf_tables messages for all chains, rules and flow tables of a namespace.
type FilterDump struct{ Chains, Rules, Flowtables [][]byte }

// Pause is a device's negotiated use of pause frames (IEEE 802.3x).
type Pause struct{ Autoneg, Receive, Transmit bool }

// ClampToPMTU is the value of MSSClamp that limits the MSS to what the MTU of the route permits.
const ClampToPMTU = 1

// TablePrefix is the name prefix of all nftables tables of this program. The program never modifies other
// tables.
const TablePrefix = "chokepoint_"

// ForwardedFirst and ForwardedLast are the first and last of the TCP and UDP ports that NATForward forwards
// to the inside.
const ForwardedFirst, ForwardedLast = 20000, 20999

// NATMode is a mode of address translation.
type NATMode string

const (
	NATOff        NATMode = "off"
	NATMasquerade NATMode = "masquerade" // packets that leave by the WAN port get its address as their source
	NATForward    NATMode = "forward"    // connections to the WAN address are forwarded to the inside
)

// NAT describes the address translation of a router. WAN is the outer port, and Outside holds its addresses.
// Inside holds the addresses to forward to. Outside and Inside have at most one address for each IP version.
type NAT struct {
	Mode            NATMode
	WAN             string
	Inside, Outside []netip.Addr
}

// FirewallForm is the form of the rules in a firewall.
type FirewallForm string

const (
	FirewallList FirewallForm = ""    // one rule per address
	FirewallSet  FirewallForm = "set" // one rule that looks up the address in a set
	FirewallMap  FirewallForm = "map" // one rule that looks up its verdict in a map
)

// Firewall describes a chain that all forwarded packets pass. The chain has the given number of rules, or one
// rule with that number of elements; none of them matches a packet. If Stateful is set, a rule before them
// accepts packets of known connections. If Log is set, a rule after them logs every packet that reaches it.
// IPv4 and IPv6 have the same rules. The zero value means no firewall.
type Firewall struct {
	On       bool
	Rules    int
	Form     FirewallForm
	Stateful bool
	Log      bool
}

// StrangeSource returns the i-th address of a list of addresses that occur in no packet. They are in
// 240.0.0.0/4 (reserved, RFC 1112 §4) or 2001:db8::/32 (documentation, RFC 3849).
func StrangeSource(ipv6 bool, i int) netip.Addr {
	if !ipv6 {
		return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, 0xf000_0001+uint32(i))))
	}

	a := netip.MustParseAddr("2001:db8::1").As16()
	binary.BigEndian.PutUint32(a[8:], uint32(i))
	return netip.AddrFrom16(a)
}

// Flowtable describes a flow table. It forwards packets of established TCP and UDP connections between
// Devices, and these packets bypass most of the kernel's forwarding path. If Hardware is set, the devices
// themselves forward the packets. The zero value means no flow table.
type Flowtable struct {
	Devices  []string
	Hardware bool
}

// SysctlPath returns the path of a kernel setting, relative to /proc/sys. The parts of a name are separated
// by dots, as in sysctl(8), or by slashes if a part contains a dot, such as the device in
// net/ipv4/conf/eth0.5/forwarding.
func SysctlPath(name string) (string, error) {
	path := name
	if !strings.Contains(name, "/") {
		path = strings.ReplaceAll(name, ".", "/")
	}

	odd := func(r rune) bool { return r <= ' ' || r > '~' || r == '=' }
	for part := range strings.SplitSeq(path, "/") {
		if part == "" || part == "." || part == ".." || strings.ContainsFunc(part, odd) {
			return "", fmt.Errorf("kernel setting %q: want a name such as net.ipv4.ip_forward", name)
		}
	}

	return "/proc/sys/" + path, nil
}

// CPUList parses a list of CPUs such as "0-1,3". It rejects numbers above the given maximum.
func CPUList(text string, most int) (list []int, ok bool) {
	for part := range strings.SplitSeq(text, ",") {
		from, to, ranged := strings.Cut(strings.TrimSpace(part), "-")
		if !ranged {
			to = from
		}

		a, err1 := strconv.ParseUint(from, 10, 16)
		b, err2 := strconv.ParseUint(to, 10, 16)
		if err1 != nil || err2 != nil || a > b || int(b) > most {
			return nil, false
		}

		for i := a; i <= b; i++ {
			list = append(list, int(i))
		}
	}
	return list, true
}

// Quota limits each vCPU of a lab's guests to a share of a core, in hundredths of a percent. 0 means no
// limit.
type Quota uint32
