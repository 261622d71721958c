package lab

import (
	"net/netip"

	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// baseSysctls are set in every node before its links come up. IPv6 addresses must not wait for duplicate
// detection (the first second of every lab would lose its packets), and path MTU caches must not outlive a
// trial.
func baseSysctls(router bool) [][2]string {
	s := [][2]string{
		{"net.ipv6.conf.all.accept_dad", "0"},
		{"net.ipv6.conf.default.accept_dad", "0"},
		{"net.ipv6.conf.default.accept_ra", "0"},
	}
	if router {
		s = append(s, [2]string{"net.ipv4.ip_forward", "1"}, [2]string{"net.ipv6.conf.all.forwarding", "1"})
	}
	return s
}

// portSysctls are the same for a device: it was made before the settings above, and its own count as well
// (duplicate detection is off only if both say so). Without them a node's link-local address, from which
// neighbours are asked for, is of no use for the first one to two seconds.
func portSysctls(port string) [][2]string {
	return [][2]string{
		{"net.ipv6.conf." + port + ".accept_dad", "0"},
		{"net.ipv6.conf." + port + ".accept_ra", "0"},
	}
}

// layouts computes every node's layout of a topology. Routing is by hop count along the chain of nodes,
// near to far: what lies behind is reached through the neighbour on that side.
func layouts(t record.Topology) []agent.Layout {
	p := addressPlan{t}
	out := make([]agent.Layout, len(t.Nodes))
	for i, n := range t.Nodes {
		l := agent.Layout{Node: n.Name, Router: n.Router, Sysctls: baseSysctls(n.Router)}
		for li, link := range t.Links {
			for e, end := range link.Ends {
				if end.Node != n.Name {
					continue
				}
				l.Ports = append(l.Ports, end.Port)
				l.Sysctls = append(l.Sysctls, portSysctls(end.Port)...)
				for _, a := range p.link(li, e) {
					l.Addresses = append(l.Addresses, agent.PortAddress{Port: end.Port, Address: a})
				}
				l.Routes = append(l.Routes, p.routesOver(i, li, e)...)
			}
		}
		l.Addresses = append(l.Addresses, p.extraAddresses(n.Name, l.Ports)...)
		out[i] = l
	}
	return out
}

// routesOver lists what node i reaches over its end e of link li: every link further on in that direction,
// and the end node's path addresses, unless a tunnel of its own leads there.
func (p addressPlan) routesOver(i, li, e int) []agent.Route {
	via := p.link(li, 1-e)
	dev := p.topology.Links[li].Ends[e].Port
	var out []agent.Route
	add := func(to []netip.Prefix) {
		for f := range to {
			out = append(out, agent.Route{To: to[f].Masked(), Via: via[f].Addr(), Dev: dev})
		}
	}
	// Links and nodes are both listed near to far, so link li joins nodes li and li+1: e == 0 looks towards
	// the far side.
	if e == 0 {
		for far := li + 1; far < len(p.topology.Links); far++ {
			pair := p.link(far, 0)
			add(pair[:])
		}
	} else {
		for near := li - 1; near >= 0; near-- {
			pair := p.link(near, 0)
			add(pair[:])
		}
	}
	for slot := 1; slot < Slots; slot++ {
		side := 1 - e // 1: the far node's addresses
		if p.hasBehind(side) && p.leadsPlainly(i, side) {
			add(p.behind(slot, side))
		}
		// The way back to the inner addresses of a tunnel that ends on the near node: its router knows them
		// by the tunnel device, the nodes behind the router send to the router.
		if e == 1 && p.topology.Tunnel[0] == p.topology.Near && i > p.index(p.topology.Tunnel[1]) {
			add(p.tunnel(slot, 0))
		}
		// And likewise to a tunnel that ends on the far node.
		if e == 0 && p.topology.Tunnel[1] == p.topology.Far && i < p.index(p.topology.Tunnel[0]) {
			add(p.tunnel(slot, 1))
		}
	}
	return out
}

// hasBehind reports whether the near (0) or far (1) node has addresses that lie behind a tunnel which ends
// elsewhere.
func (p addressPlan) hasBehind(side int) bool {
	if side == 0 {
		return p.topology.Tunnel[0] != p.topology.Near
	}
	return p.topology.Tunnel[1] != p.topology.Far
}

// leadsPlainly reports whether node i reaches the path addresses of a side over plain links: it is at or
// beyond the tunnel's end on that side. Before it, only the node that holds the tunnel's other end routes
// there, through the tunnel; the end nodes send to their router.
func (p addressPlan) leadsPlainly(i, side int) bool {
	near, far := p.index(p.topology.Tunnel[0]), p.index(p.topology.Tunnel[1])
	if side == 1 {
		return i >= far || i < near
	}
	return i <= near || i > far
}

func (p addressPlan) index(node string) int {
	for i, n := range p.topology.Nodes {
		if n.Name == node {
			return i
		}
	}
	return -1
}

// extraAddresses are the path addresses that a near or far node carries for every slot, on its only port.
func (p addressPlan) extraAddresses(node string, ports []string) []agent.PortAddress {
	var out []agent.PortAddress
	for side, name := range []string{p.topology.Near, p.topology.Far} {
		if name != node || !p.hasBehind(side) {
			continue
		}
		for slot := 1; slot < Slots; slot++ {
			for _, a := range p.behind(slot, side) {
				out = append(out, agent.PortAddress{Port: ports[0], Address: a})
			}
		}
	}
	return out
}
