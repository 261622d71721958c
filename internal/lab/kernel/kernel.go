// Package kernel speaks to the kernel of the process' own network namespace: links, addresses, routes,
// queues, offloads, packet filter, settings. It alone imports netlink, ethtool, nftables and wgctrl.
// It keeps nothing and undoes nothing; where an operating system or a kernel lacks something, the error
// matches ErrUnsupported.
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

// Hop describes the first hop of a path: the device that packets leave by, and the neighbour there.
type Hop struct {
	Device   string
	Index    int
	Kind     string // such as "veth"; "device" is any without a name of its own
	RxQueues int
	Source   net.HardwareAddr // the device's own
	Addr     netip.Addr       // of the neighbour
	MAC      net.HardwareAddr // nil = not known now
}

// Way describes how packets leave a node: by a device, from an address, and first to a neighbour; Via is not
// valid where they go to somebody on the link itself.
type Way struct {
	Device string     `json:"device,omitempty"`
	Source netip.Addr `json:"source,omitzero"`
	Via    netip.Addr `json:"via,omitzero"`
}

// Via is a route by way of a neighbour.
type Via struct {
	To      netip.Prefix
	Gateway netip.Addr
}

// LinkCounters are a device's counters since it was made, from struct rtnl_link_stats64.
type LinkCounters struct {
	RxBytes, RxPackets, RxDropped uint64
	TxBytes, TxPackets, TxDropped uint64
}

// Link describes a network device. Lower is the device that carries it, "" where that lies in another
// namespace.
type Link struct {
	Name, Master, Lower string
	Kind                string // such as "veth"; "" where the kernel names none
	Index, MTU          int
	Up, Loopback        bool
}

// FilterDump holds the messages of nf_tables about all chains, rules and flow tables of a namespace.
type FilterDump struct{ Chains, Rules, Flowtables [][]byte }

// Pause holds a device's negotiated use of pause frames (IEEE 802.3x).
type Pause struct{ Autoneg, Receive, Transmit bool }

// ClampToPMTU is the size to which an MSS clamp lowers segments where the MTU of their route decides.
const ClampToPMTU = 1

// TablePrefix begins the name of every packet filter table that this program makes; no other table is ever
// touched.
const TablePrefix = "chokepoint_"

// ForwardedFirst and ForwardedLast are the first and last port that a NATForward sends inside, TCP and UDP
// alike.
const ForwardedFirst, ForwardedLast = 20000, 20999

// NATMode is a kind of address translation.
type NATMode string

const (
	NATOff        NATMode = "off"
	NATMasquerade NATMode = "masquerade" // what leaves by the WAN port takes its address
	NATForward    NATMode = "forward"    // what arrives at the WAN address goes inside
)

// NAT is the address translation of a router. WAN is its outer port; Outside are its addresses there and
// Inside those that a forward leads to, at most one each per IP version.
type NAT struct {
	Mode            NATMode
	WAN             string
	Inside, Outside []netip.Addr
}

// FirewallForm is the way by which a firewall finds that none of its rules matches.
type FirewallForm string

const (
	FirewallList FirewallForm = ""    // rule after rule
	FirewallSet  FirewallForm = "set" // one rule that looks the address up in a set
	FirewallMap  FirewallForm = "map" // one rule that takes its verdict from a map
)

// Firewall is a chain that every forwarded packet runs through: Rules of them, or elements of one, none of
// which matches. Ahead of them, if Stateful, is one that accepts what belongs to a known connection; behind
// them, if Log, one that writes each packet that comes so far to the kernel's log. Both versions of IP have
// the same. The zero value is none.
type Firewall struct {
	On       bool
	Rules    int
	Form     FirewallForm
	Stateful bool
	Log      bool
}

// StrangeSource returns the i-th address that no packet bears: of 240.0.0.0/4 (RFC 1112 §4, reserved) or of
// 2001:db8::/32 (RFC 3849, documentation).
func StrangeSource(ipv6 bool, i int) netip.Addr {
	if !ipv6 {
		return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, 0xf000_0001+uint32(i))))
	}

	a := netip.MustParseAddr("2001:db8::1").As16()
	binary.BigEndian.PutUint32(a[8:], uint32(i))
	return netip.AddrFrom16(a)
}

// Flowtable lets the TCP and UDP connections that Devices forward go from the one's ingress to the other's
// egress once they are known, past the packet filter's later rules; with Hardware the devices themselves
// carry them. The zero value is none.
type Flowtable struct {
	Devices  []string
	Hardware bool
}

// SysctlPath is the file of a kernel setting below /proc/sys. A name is written with dots, as sysctl(8)
// does; where a part of it contains a dot itself, such as the device in net/ipv4/conf/eth0.5/forwarding,
// with slashes.
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

// CPUList reads a list of CPUs such as "0-1,3", none above most.
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

// Quota limits each vCPU of a lab's guests to a share of one core, in hundredths of a percent; 0 is without a
// limit.
type Quota uint32
