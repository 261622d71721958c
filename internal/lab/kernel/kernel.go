// Package kernel accesses the kernel of the process's own network namespace: links, addresses, routes,
// queues, offloads, packet filter, settings. It alone imports netlink, ethtool, nftables and wgctrl. It keeps
// no state and undoes nothing; if an operating system or a kernel lacks something, the error matches
// ErrUnsupported.
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

// ErrUnsupported means that something is conclusively impossible on this kernel.
var ErrUnsupported = errors.New("not supported by this kernel")

// ErrAbsent means that the named thing does not exist.
var ErrAbsent = errors.New("does not exist")

// UDPSegmentation is the offload that a tap has only if the program at its other end accepts such packets,
// which the tap's flags do not show.
const UDPSegmentation = "tx-udp-segmentation"

// VethEnd is one end of a virtual Ethernet link. PID identifies the network namespace by a process in it; 0
// is the caller's own. MTU 0 is the kernel's default.
type VethEnd struct {
	Name string
	PID  int
	MTU  int
}

// Hop describes the first hop of a path: the outgoing device, and the neighbour there.
type Hop struct {
	Device   string
	Index    int
	Kind     string // such as "veth"; "device" is any kind without a name
	RxQueues int
	Source   net.HardwareAddr // the device's address
	Addr     netip.Addr       // of the neighbour
	MAC      net.HardwareAddr // nil = currently unknown
}

// Way describes how packets leave a node: by a device, from an address, and first to a neighbour; Via is
// invalid for a destination on the link itself.
type Way struct {
	Device string     `json:"device,omitempty"`
	Source netip.Addr `json:"source,omitzero"`
	Via    netip.Addr `json:"via,omitzero"`
}

// Via is a route through a neighbour.
type Via struct {
	To      netip.Prefix
	Gateway netip.Addr
}

// LinkCounters are a device's counters since it was created, from struct rtnl_link_stats64.
type LinkCounters struct {
	RxBytes, RxPackets, RxDropped uint64
	TxBytes, TxPackets, TxDropped uint64
}

// Link describes a network device. Lower is the device that carries it, "" if that is in another namespace.
type Link struct {
	Name, Master, Lower string
	Kind                string // such as "veth"; "" if the kernel names none
	Index, MTU          int
	Up, Loopback        bool
}

// FilterDump holds the messages of nf_tables about all chains, rules and flow tables of a namespace.
type FilterDump struct{ Chains, Rules, Flowtables [][]byte }

// Pause holds a device's negotiated use of pause frames (IEEE 802.3x).
type Pause struct{ Autoneg, Receive, Transmit bool }

// ClampToPMTU is the size of an MSS clamp that follows the MTU of the route.
const ClampToPMTU = 1

// TablePrefix begins the name of every packet filter table that this program makes; it never touches other
// tables.
const TablePrefix = "chokepoint_"

// ForwardedFirst and ForwardedLast are the first and last port that a NATForward forwards to the inside, TCP
// and UDP alike.
const ForwardedFirst, ForwardedLast = 20000, 20999

// NATMode is a kind of address translation.
type NATMode string

const (
	NATOff        NATMode = "off"
	NATMasquerade NATMode = "masquerade" // packets that leave by the WAN port take its address
	NATForward    NATMode = "forward"    // packets to the WAN address are forwarded to the inside
)

// NAT is the address translation of a router. WAN is its outer port; Outside are its addresses there and
// Inside the targets of a forward, at most one each per IP version.
type NAT struct {
	Mode            NATMode
	WAN             string
	Inside, Outside []netip.Addr
}

// FirewallForm is how a firewall determines that none of its rules matches.
type FirewallForm string

const (
	FirewallList FirewallForm = ""    // rule after rule
	FirewallSet  FirewallForm = "set" // one rule that looks up the address in a set
	FirewallMap  FirewallForm = "map" // one rule that takes its verdict from a map
)

// Firewall is a chain that every forwarded packet passes: Rules rules, or one rule with as many elements,
// none of which matches. If Stateful, a rule before them accepts packets of known connections; if Log, one
// after them logs each packet that gets this far. Both versions of IP have the same. The zero value means no
// firewall.
type Firewall struct {
	On       bool
	Rules    int
	Form     FirewallForm
	Stateful bool
	Log      bool
}

// StrangeSource returns the i-th address that no packet has: from 240.0.0.0/4 (RFC 1112 §4, reserved) or
// 2001:db8::/32 (RFC 3849, documentation).
func StrangeSource(ipv6 bool, i int) netip.Addr {
	if !ipv6 {
		return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, 0xf000_0001+uint32(i))))
	}

	a := netip.MustParseAddr("2001:db8::1").As16()
	binary.BigEndian.PutUint32(a[8:], uint32(i))
	return netip.AddrFrom16(a)
}

// Flowtable lets the known TCP and UDP connections that Devices forward pass from one's ingress to the
// other's egress, bypassing the packet filter's later rules; with Hardware the devices themselves carry them.
// The zero value means no flow table.
type Flowtable struct {
	Devices  []string
	Hardware bool
}

// SysctlPath returns the file of a kernel setting below /proc/sys. A name is written with dots, as in
// sysctl(8), or with slashes if a part of it contains a dot itself, such as the device in
// net/ipv4/conf/eth0.5/forwarding.
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

// CPUList parses a list of CPUs such as "0-1,3", none above most.
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

// Quota limits each vCPU of a lab's guests to a share of one core, in hundredths of a percent; 0 means no
// limit.
type Quota uint32
