// Package kernel accesses the Linux kernel in the network namespace of this process: links, addresses,
// routes, queues, offloads, packet filter and settings. No other package imports netlink, ethtool, nftables
// or wgctrl. The package has no state and undoes nothing. If an operating system or a kernel lacks a feature,
// the error matches ErrUnsupported.
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

// ErrUnsupported reports that this kernel definitely cannot do something.
var ErrUnsupported = errors.New("not supported by this kernel")

// ErrAbsent reports that an object of the given name does not exist.
var ErrAbsent = errors.New("does not exist")

// UDPSegmentation is an offload that a tap supports only if the program at its other end accepts such
// packets, which the tap's flags do not show.
const UDPSegmentation = "tx-udp-segmentation"

// VethEnd describes one end of a virtual Ethernet link. PID is a process in the end's network namespace; 0
// means the caller's. MTU 0 means the kernel's default.
type VethEnd struct {
	Name string
	PID  int
	MTU  int
}

// Hop is the first hop of a path: the outgoing device and the next neighbour.
type Hop struct {
	Device   string
	Index    int
	Kind     string // such as "veth"; "device" if the kernel names none
	RxQueues int
	Source   net.HardwareAddr // hardware address of Device
	Addr     netip.Addr       // the neighbour's IP address
	MAC      net.HardwareAddr // the neighbour's hardware address; nil = currently unknown
}

// Way describes how packets to a destination leave a node: the outgoing device, the source address, and the
// gateway. Via is invalid if the destination is on the link.
type Way struct {
	Device string     `json:"device,omitempty"`
	Source netip.Addr `json:"source,omitzero"`
	Via    netip.Addr `json:"via,omitzero"`
}

// Via is a route to a network via a gateway.
type Via struct {
	To      netip.Prefix
	Gateway netip.Addr
}

// LinkCounters are a device's counters since its creation, from struct rtnl_link_stats64.
type LinkCounters struct {
	RxBytes, RxPackets, RxDropped uint64
	TxBytes, TxPackets, TxDropped uint64
}

// Link describes a network device. Lower is the device that it is stacked on, "" if none or in another
// namespace.
type Link struct {
	Name, Master, Lower string
	Kind                string // such as "veth"; "" if the kernel names none
	Index, MTU          int
	Up, Loopback        bool
}

// FilterDump holds the nf_tables messages for all chains, rules and flow tables of a namespace.
type FilterDump struct{ Chains, Rules, Flowtables [][]byte }

// Pause is a device's negotiated use of pause frames (IEEE 802.3x).
type Pause struct{ Autoneg, Receive, Transmit bool }

// ClampToPMTU is the value of MSSClamp that follows the MTU of the route.
const ClampToPMTU = 1

// TablePrefix is the name prefix of all nftables tables of this program. It never modifies other tables.
const TablePrefix = "chokepoint_"

// ForwardedFirst and ForwardedLast bound the TCP and UDP ports that NATForward forwards to the inside.
const ForwardedFirst, ForwardedLast = 20000, 20999

// NATMode is a mode of address translation.
type NATMode string

const (
	NATOff        NATMode = "off"
	NATMasquerade NATMode = "masquerade" // packets that leave by the WAN port get its address as source
	NATForward    NATMode = "forward"    // connections to the WAN address are forwarded to the inside
)

// NAT describes a router's address translation. WAN is the outer port and Outside its addresses. Inside are
// the targets of forwarding. Each has at most one address per IP version.
type NAT struct {
	Mode            NATMode
	WAN             string
	Inside, Outside []netip.Addr
}

// FirewallForm is the kind of rules in a firewall.
type FirewallForm string

const (
	FirewallList FirewallForm = ""    // one rule per address
	FirewallSet  FirewallForm = "set" // one rule that looks the address up in a set
	FirewallMap  FirewallForm = "map" // one rule that takes its verdict from a map
)

// Firewall is a chain that all forwarded packets pass, with the given number of rules, or one rule with as
// many elements, none of which match. If Stateful is set, a rule before them accepts packets of known
// connections. If Log is set, a rule after them logs every packet that reaches it. IPv4 and IPv6 have the
// same rules. The zero value means no firewall.
type Firewall struct {
	On       bool
	Rules    int
	Form     FirewallForm
	Stateful bool
	Log      bool
}

// StrangeSource returns the i-th of some addresses that no packet has, in 240.0.0.0/4 (reserved, RFC 1112 §4)
// or 2001:db8::/32 (documentation, RFC 3849).
func StrangeSource(ipv6 bool, i int) netip.Addr {
	if !ipv6 {
		return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, 0xf000_0001+uint32(i))))
	}

	a := netip.MustParseAddr("2001:db8::1").As16()
	binary.BigEndian.PutUint32(a[8:], uint32(i))
	return netip.AddrFrom16(a)
}

// Flowtable describes a flow table that forwards packets of established TCP and UDP connections between
// Devices, bypassing most of the forwarding path. With Hardware, the devices themselves forward them. The
// zero value means no flow table.
type Flowtable struct {
	Devices  []string
	Hardware bool
}

// SysctlPath returns the path below /proc/sys for a kernel setting. Names have dots, as in sysctl(8), or
// slashes if a part contains a dot, such as the device in net/ipv4/conf/eth0.5/forwarding.
func SysctlPath(name string) (string, error) {
	path := name
	if !strings.Contains(name, "/") {
		path = strings.ReplaceAll(name, ".", "/")
	}

	for part := range strings.SplitSeq(path, "/") {
		if part == "" || part == "." || part == ".." || strings.ContainsFunc(part, odd) {
			return "", fmt.Errorf("kernel setting %q: want a name such as net.ipv4.ip_forward", name)
		}
	}

	return "/proc/sys/" + path, nil
}

func odd(r rune) bool { return r <= ' ' || r > '~' || r == '=' }

// CPUList parses a list of CPUs such as "0-1,3". Numbers above most are invalid.
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

// Quota limits each vCPU of a lab's guests to a share of a core, in hundredths of a percent; 0 = no limit.
type Quota uint32
