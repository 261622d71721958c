package kernel

import "net/netip"

// TablePrefix begins the name of every packet filter table that this program makes; no other table is ever
// touched.
const TablePrefix = "chokepoint_"

// ForwardedPorts are the first and last port that a NATForward sends inside, TCP and UDP alike.
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

// FirewallForm is how a firewall finds out that none of its rules matches.
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
