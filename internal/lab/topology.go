package lab

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Topologies are the shapes a lab can have, in the order they are listed. Ports face the near side ("lan")
// or the far side ("wan") of a router; the port's name is also the device's.
func Topologies() []record.Topology {
	return []record.Topology{
		chain("forward", "client lan router wan server", "client", "router"),
		chain("to-router", "client lan router", "client", "router"),
		// With a peer between client and router: it holds the tunnel's near end where the client, or its
		// kernel, cannot.
		chain("peer-to-router", "client lan peer wan router", "peer", "router"),
		chain("site-to-site", "client lan-a router-a wan router-b lan-b server", "router-a", "router-b"),
		// the control: what the tester and a tunnel achieve without a router
		chain("direct", "client lan server", "client", "server"),
	}
}

// chain returns a topology of nodes in a row, near to far, with the links between them. row alternates nodes
// and links; each link names its ports and may add a letter. near and far are the ends of a tunnel.
func chain(name, row, near, far string) record.Topology {
	f := strings.Fields(row)
	t := record.Topology{Name: name, Near: f[0], Far: f[len(f)-1], Tunnel: [2]string{near, far}}
	for i, node := range f {
		if i%2 == 1 {
			port, _, _ := strings.Cut(node, "-")
			t.Links = append(t.Links, record.TopoLink{
				Name: node,
				Ends: [2]record.TopoPort{{Node: f[i-1], Port: port}, {Node: f[i+1], Port: port}},
			})
			continue
		}

		t.Nodes = append(t.Nodes, record.TopoNode{Name: node, Router: node != "client" && node != "server"})
		if strings.HasPrefix(node, "router") {
			t.Routers = append(t.Routers, node)
		}
	}

	return t
}

// TopologyNamed finds one of Topologies.
func TopologyNamed(name string) (record.Topology, error) {
	all := Topologies()
	i := slices.IndexFunc(all, func(t record.Topology) bool { return t.Name == name })
	if i < 0 {
		return record.Topology{}, fmt.Errorf("find topology %q: unknown", name)
	}

	return all[i], nil
}

// A lab carries the plain path and up to Slots-1 tunnels at the same time. The paths are distinguished by
// addresses, so that nothing needs rerouting between trials: slot 0 is the plain path, each other slot has a
// far (and, site to site, a near) address of its own behind its tunnel.
const Slots = 17

// Addresses of the plan, from the blocks set aside for benchmarking: 198.18.0.0/15 (RFC 2544 §C.2.2) and
// 2001:2::/48 (RFC 5180 §8).
type addressPlan struct{ topology record.Topology }

// link returns both addresses of an end (0 or 1) of the topology's i-th link.
func (addressPlan) link(i, end int) []netip.Prefix { return both(18, i+1, i+1, end, 24, 64) }

// tunnel returns the inner addresses of an end (0 near, 1 far) of a slot.
func (addressPlan) tunnel(slot, end int) []netip.Prefix {
	return both(19, slot, 0x100+slot, end, 24, 64)
}

// behind returns the host addresses that only a slot's path reaches, at the near (0) or far (1) node.
func (addressPlan) behind(slot, end int) []netip.Prefix {
	return both(19, 64+slot, 0x200+slot, end, 32, 128)
}

// both returns an end's IPv4 address, in a subnet of 198.block, and its IPv6 address.
func both(block byte, subnet4, subnet6, end, bits4, bits6 int) []netip.Prefix {
	return []netip.Prefix{
		netip.PrefixFrom(netip.AddrFrom4([4]byte{198, block, byte(subnet4), byte(end + 1)}), bits4),
		netip.PrefixFrom(netip.AddrFrom16([16]byte{0x20, 0x01, 0, 2, 6: byte(subnet6 >> 8), 7: byte(subnet6),
			15: byte(end + 1)}), bits6),
	}
}

// family returns the IPv4 or IPv6 address of a pair.
func family(pair []netip.Prefix, ip int) netip.Addr {
	if ip == 6 {
		return pair[1].Addr()
	}
	return pair[0].Addr()
}

// node returns the near (0) or far (1) node.
func (p addressPlan) node(end int) string { return [2]string{p.topology.Near, p.topology.Far}[end] }

// linkOf finds the link and end of a node's port.
func (p addressPlan) linkOf(node, port string) (link, end int, ok bool) {
	for i, l := range p.topology.Links {
		for e, q := range l.Ends {
			if q.Node == node && (port == "" || q.Port == port) {
				return i, e, true
			}
		}
	}
	return 0, 0, false
}

// endAddress returns the address of the near (0) or far (1) node on a slot's path.
func (p addressPlan) endAddress(slot, end, ip int) netip.Addr {
	switch {
	case slot == 0:
		i, e, _ := p.linkOf(p.node(end), "")
		return family(p.link(i, e), ip)
	case p.hasBehind(end):
		return family(p.behind(slot, end), ip)
	}
	return family(p.tunnel(slot, end), ip) // the tunnel ends on this node
}

// outer returns the underlay address of a tunnel's near (0) or far (1) end: the one on the link that the two
// ends share.
func (p addressPlan) outer(end, ip int) netip.Addr {
	for i, l := range p.topology.Links {
		for e, q := range l.Ends {
			if q.Node == p.topology.Tunnel[end] && l.Ends[1-e].Node == p.topology.Tunnel[1-end] {
				return family(p.link(i, e), ip)
			}
		}
	}
	return netip.Addr{}
}

// layouts computes every node's layout of a topology. Routing is by hop count along the chain of nodes, near
// to far: networks behind a neighbour are reached through it.
func layouts(t record.Topology) []agent.Layout {
	p := addressPlan{t}
	out := make([]agent.Layout, len(t.Nodes))
	for i, n := range t.Nodes {
		l := agent.Layout{Node: n.Name, Router: n.Router, Sysctls: baseSysctls(n.Router)}
		add := func(port string, addresses []netip.Prefix) {
			for _, a := range addresses {
				l.Addresses = append(l.Addresses, agent.PortAddress{Port: port, Address: a})
			}
		}
		for li, link := range t.Links {
			for e, end := range link.Ends {
				if end.Node != n.Name {
					continue
				}

				l.Ports = append(l.Ports, end.Port)
				// The device was made before the settings above, and its own also count (duplicate detection
				// is off only if both disable it). Without them a node's link-local address, which neighbour
				// discovery uses, is unusable for the first one to two seconds.
				l.Sysctls = append(l.Sysctls, [2]string{"net.ipv6.conf." + end.Port + ".accept_dad", "0"},
					[2]string{"net.ipv6.conf." + end.Port + ".accept_ra", "0"})
				add(end.Port, p.link(li, e))
				l.Routes = append(l.Routes, p.routesOver(i, li, e)...)
			}
		}

		// The path addresses that a near or far node carries for every slot, on its only port.
		for side := range 2 {
			for slot := 1; slot < Slots && n.Name == p.node(side) && p.hasBehind(side); slot++ {
				add(l.Ports[0], p.behind(slot, side))
			}
		}

		out[i] = l
	}

	return out
}

// baseSysctls apply to every node before its links come up. IPv6 addresses must not wait for duplicate
// detection (the first second of every lab would lose its packets), and path MTU caches must not outlive a
// trial.
func baseSysctls(router bool) [][2]string {
	s := [][2]string{{"net.ipv6.conf.all.accept_dad", "0"}, {"net.ipv6.conf.default.accept_dad", "0"},
		{"net.ipv6.conf.default.accept_ra", "0"}}
	if router {
		s = append(s, [2]string{"net.ipv4.ip_forward", "1"}, [2]string{"net.ipv6.conf.all.forwarding", "1"})
	}
	return s
}

// routesOver lists what node i reaches over its end e of link li: every further link in that direction, and
// the end node's path addresses, unless a tunnel of its own leads there.
func (p addressPlan) routesOver(i, li, e int) (out []agent.Route) {
	via := p.link(li, 1-e)
	add := func(to []netip.Prefix) {
		for f := range to {
			out = append(out, agent.Route{
				To:  to[f].Masked(),
				Via: via[f].Addr(),
				Dev: p.topology.Links[li].Ends[e].Port,
			})
		}
	}
	// Links and nodes are both listed near to far, so link li joins nodes li and li+1: e == 0 looks towards
	// the far side.
	step := 1 - 2*e
	for on := li + step; on >= 0 && on < len(p.topology.Links); on += step {
		add(p.link(on, 0))
	}

	tunnel := p.topology.Tunnel
	for slot := 1; slot < Slots; slot++ {
		side := 1 - e // 1: the far node's addresses
		if p.hasBehind(side) && p.leadsPlainly(i, side) {
			add(p.behind(slot, side))
		}

		// The return route to the inner addresses of a tunnel that ends on the near node: its router reaches
		// them by the tunnel device, and the nodes behind the router send to the router.
		if e == 1 && !p.hasBehind(0) && i > p.index(tunnel[1]) {
			add(p.tunnel(slot, 0))
		}

		// Likewise for a tunnel that ends on the far node.
		if e == 0 && !p.hasBehind(1) && i < p.index(tunnel[0]) {
			add(p.tunnel(slot, 1))
		}
	}

	return out
}

// hasBehind reports whether the near (0) or far (1) node has addresses behind a tunnel which ends elsewhere.
func (p addressPlan) hasBehind(side int) bool { return p.topology.Tunnel[side] != p.node(side) }

// leadsPlainly reports whether node i reaches the path addresses of a side over plain links: it is at or
// beyond the tunnel's end on that side. Before that, only the node with the tunnel's other end routes there,
// through the tunnel; the end nodes send to their router.
func (p addressPlan) leadsPlainly(i, side int) bool {
	near := p.index(p.topology.Tunnel[0])
	far := p.index(p.topology.Tunnel[1])
	if side == 1 {
		return i >= far || i < near
	}

	return i <= near || i > far
}

func (p addressPlan) index(node string) int {
	return slices.IndexFunc(p.topology.Nodes, func(n record.TopoNode) bool { return n.Name == node })
}
