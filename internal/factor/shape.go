package factor

import (
	"slices"
	"strconv"
	"strings"
)

// Shape describes a lab: nodes and links, with roles by name. Near and Far name the nodes between which
// traffic runs. A level of the factor topology refers to a Shape.
type Shape struct {
	Name    string    `json:"name"`
	Nodes   []Node    `json:"nodes"`
	Links   []Link    `json:"links"`
	Near    string    `json:"near"`
	Far     string    `json:"far"`
	Tunnel  [2]string `json:"tunnel"`  // the nodes between which a tunnel is laid
	Routers []string  `json:"routers"` // devices under test, near to far
}

// Node is a machine of the lab.
type Node struct {
	Name   string `json:"name"`
	Router bool   `json:"router"` // forwards packets; a device under test
}

// Link joins two ports.
type Link struct {
	Name string  `json:"name"` // "lan", "wan", …
	Ends [2]Port `json:"ends"`
}

// Port is an interface of a node; Port is also the device's name there.
type Port struct {
	Node string `json:"node"`
	Port string `json:"port"`
}

// Ends reports whether traffic begins or ends at a node.
func (s Shape) Ends(node string) bool { return node == s.Near || node == s.Far }

// Forwards reports whether a device under test forwards others' packets: any, or the one named.
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

// FarPorts lists the ports of a node that face the far side: the near end of a link is its first.
func (s Shape) FarPorts(node string) []Port {
	var out []Port
	for _, l := range s.Links {
		if l.Ends[0].Node == node {
			out = append(out, l.Ends[0])
		}
	}
	return out
}

// has reports whether the lab has a place, "node" or "node.port".
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

// NeedsRouter is the Needs of a setting of the device under test: if the plan names no place, there must be
// one.
func NeedsRouter(s Shape, place string) (bool, string) {
	if (place == "" || place == Host) && len(s.Routers) == 0 {
		return false, "topology " + s.Name + " has no router"
	}
	return true, ""
}

// NeedsForwarding is the Needs of a setting that affects only forwarded packets.
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

// NeedsDirection is the Needs of a setting of one port, which follows from the direction of forwarding unless
// the plan names it.
func NeedsDirection(s Shape, place string) (bool, string) {
	if place == "" {
		return NeedsForwarding(s, place)
	}
	return NeedsRouter(s, place)
}

const (
	defaultLinkMTU = 1500
	maxPacket      = 65535 // the largest packet length possible in IP, in bytes
	minIPv4MTU     = 576   // RFC 791: every host accepts packets of this size
	minIPv6MTU     = 1280  // RFC 8200, section 5
)

// PathMTU returns the largest IP packet in bytes that a cell's path carries unfragmented: the smallest MTU of
// the shape's links, where a tunnel's inner MTU replaces that of the link below it. A cell without the factor
// mtu has no tunnel.
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

// Levels of the factor wan.
const (
	StaticWAN = "static"
	PPPoE     = "pppoe"
)

// sessionHead returns the bytes that PPPoE adds to a packet on the first router's WAN link (RFC 2516).
func sessionHead(c Cell, wan bool) int {
	if wan && WAN.Is(c, PPPoE) {
		return 8 // its own header, and PPP's protocol number
	}
	return 0
}

// NoWAN refuses a provider if there is no place for one.
func NoWAN(s Shape, c Cell) string {
	if WAN.In(c) && !WAN.Is(c, StaticWAN) && (len(s.Routers) == 0 || len(s.FarPorts(s.Routers[0])) == 0) {
		return "topology " + s.Name + " has no link beyond a router on which to play a provider"
	}
	return ""
}

// portMTU returns the MTU that the cell sets on a port: the most specific place wins.
func portMTU(c Cell, p Port) int {
	for _, place := range []string{p.Node + "." + p.Port, p.Node, ""} {
		level, _ := LinkMTU.At(c, place)
		if mtu, err := strconv.Atoi(level); err == nil {
			return mtu
		}
	}
	return defaultLinkMTU
}

// UnderlayMTU returns the smallest MTU that the cell sets on the underlay.
func UnderlayMTU(c Cell) int { return linksMTU(c) - sessionHead(c, Topology.Is(c, "site-to-site")) }

func linksMTU(c Cell) int {
	mtu := 0
	for _, level := range LinkMTU.Each(c) {
		if v, err := strconv.Atoi(level); err == nil && (mtu == 0 || v < mtu) {
			mtu = v
		}
	}

	if !LinkMTU.In(c) && (mtu == 0 || mtu > defaultLinkMTU) {
		return defaultLinkMTU // the other links keep their default
	}

	return mtu
}
