package factor

import (
	"slices"
	"strconv"
	"strings"
)

// Shape describes a lab: its nodes and links, and their roles. Near and Far are the names of the endpoints
// of the traffic. Each level of the factor topology is the name of a Shape.
type Shape struct {
	Name    string    `json:"name"`
	Nodes   []Node    `json:"nodes"`
	Links   []Link    `json:"links"`
	Near    string    `json:"near"`
	Far     string    `json:"far"`
	Tunnel  [2]string `json:"tunnel"`  // the endpoints of the tunnel
	Routers []string  `json:"routers"` // devices under test, from near to far
}

// Node is a machine of the lab.
type Node struct {
	Name   string `json:"name"`
	Router bool   `json:"router"` // device under test, which forwards packets
}

// Link connects two ports.
type Link struct {
	Name string  `json:"name"` // "lan", "wan", …
	Ends [2]Port `json:"ends"`
}

// Port identifies an interface of a node. The field Port is the name of the device on that node.
type Port struct {
	Node string `json:"node"`
	Port string `json:"port"`
}

// Ends reports whether a node is an endpoint of the traffic.
func (s Shape) Ends(node string) bool { return node == s.Near || node == s.Far }

// Forwards reports whether the given node is a device under test that forwards packets. If node is "",
// Forwards reports whether the lab has any such device.
func (s Shape) Forwards(node string) bool {
	return slices.ContainsFunc(s.Routers, func(r string) bool {
		return (node == "" || r == node) && !s.Ends(r)
	})
}

// Ports lists the ports of a node, in the order of the links.
func (s Shape) Ports(node string) []Port {
	var out []Port
	for _, l := range s.Links {
		for _, e := range l.Ends {
			if e.Node == node {
				out = append(out, e)
			}
		}
	}
	return out
}

// FarPorts lists the ports of a node that face the far endpoint. Each of them is the first end of its link,
// because a link lists its near end first.
func (s Shape) FarPorts(node string) []Port {
	var out []Port
	for _, l := range s.Links {
		if l.Ends[0].Node == node {
			out = append(out, l.Ends[0])
		}
	}
	return out
}

// has reports whether the lab has the given place, in the form "node" or "node.port".
func (s Shape) has(place string) bool {
	if place == Host {
		return true
	}

	node, port, isPort := strings.Cut(place, ".")
	if !isPort {
		return slices.ContainsFunc(s.Nodes, func(n Node) bool { return n.Name == node })
	}

	return slices.Contains(s.Ports(node), Port{node, port})
}

// NeedsRouter implements Needs for settings of the device under test. If the plan names no place, the lab
// must have a router.
func NeedsRouter(s Shape, place string) (bool, string) {
	if (place == "" || place == Host) && len(s.Routers) == 0 {
		return false, "topology " + s.Name + " has no router"
	}
	return true, ""
}

// NeedsForwarding implements Needs for settings that affect only packets that the node forwards.
func NeedsForwarding(s Shape, place string) (bool, string) {
	ok, why := NeedsRouter(s, place)
	node, _, _ := strings.Cut(place, ".")
	switch {
	case !ok || s.Forwards(node):
		return ok, why
	case place == "":
		return false, "topology " + s.Name + " forwards nothing"
	}

	return false, node + " forwards nothing in topology " + s.Name
}

// NeedsDirection implements Needs for settings of one port. If the plan names no place, the direction of
// forwarding determines the port.
func NeedsDirection(s Shape, place string) (bool, string) {
	if place == "" {
		return NeedsForwarding(s, place)
	}
	return NeedsRouter(s, place)
}

const (
	defaultLinkMTU = 1500
	maxPacket      = 65535 // largest IP packet, in bytes
	minIPv4MTU     = 576   // RFC 791: every host must accept packets of this size
	minIPv6MTU     = 1280  // RFC 8200, section 5
)

// PathMTU returns the length in bytes of the largest IP packet that the cell's path carries unfragmented.
// It is the smallest MTU of the shape's links, with the inner MTU in place of the MTU of the tunnel's
// link. A cell without the factor mtu has no tunnel.
func PathMTU(s Shape, c Cell) int {
	least := maxPacket
	inner, err := strconv.Atoi(MTU.Of(c))
	for _, l := range s.Links {
		a := l.Ends[0]
		b := l.Ends[1]
		wan := len(s.Routers) > 0 && a.Node == s.Routers[0]
		mtu := min(portMTU(c, a), portMTU(c, b)) - sessionHead(c, wan)
		ends := [2]string{a.Node, b.Node}
		if err == nil &&
			(ends == s.Tunnel || ends == [2]string{s.Tunnel[1], s.Tunnel[0]}) {
			mtu = inner
		}

		least = min(least, mtu)
	}

	return least
}

// These are the levels of the factor wan.
const (
	StaticWAN = "static"
	PPPoE     = "pppoe"
)

// sessionHead returns the number of bytes that PPPoE (RFC 2516) adds to a packet on the first router's WAN
// link, or 0 without PPPoE.
func sessionHead(c Cell, wan bool) int {
	if wan && WAN.Is(c, PPPoE) {
		return 8 // PPPoE header of 6 bytes and PPP protocol field of 2
	}
	return 0
}

// NoWAN returns an error text if the cell needs an emulated provider but no link of the lab can emulate it.
// Otherwise, it returns "".
func NoWAN(s Shape, c Cell) string {
	if WAN.In(c) && !WAN.Is(c, StaticWAN) && (len(s.Routers) == 0 || len(s.FarPorts(s.Routers[0])) == 0) {
		return "topology " + s.Name + " has no link beyond a router on which to play a provider"
	}
	return ""
}

// portMTU returns the MTU that the cell sets on a port. A level for the port takes precedence over a level
// for its node, which takes precedence over a level without a place.
func portMTU(c Cell, p Port) int {
	for _, place := range []string{p.Node + "." + p.Port, p.Node, ""} {
		level, _ := LinkMTU.At(c, place)
		if mtu, err := strconv.Atoi(level); err == nil {
			return mtu
		}
	}
	return defaultLinkMTU
}

// UnderlayMTU returns the smallest MTU in bytes that the cell sets on the links below a tunnel, minus the
// size of the PPPoE header, if there is one.
func UnderlayMTU(c Cell) int { return linksMTU(c) - sessionHead(c, Topology.Is(c, "site-to-site")) }

func linksMTU(c Cell) int {
	mtu := 0
	for _, level := range LinkMTU.Each(c) {
		if v, err := strconv.Atoi(level); err == nil && (mtu == 0 || v < mtu) {
			mtu = v
		}
	}

	if !LinkMTU.In(c) && (mtu == 0 || mtu > defaultLinkMTU) {
		return defaultLinkMTU // no level applies to this link
	}

	return mtu
}
