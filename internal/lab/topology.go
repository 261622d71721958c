package lab

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Topologies returns the topologies of labs in display order. Port "lan" of a router leads to the near side,
// and port "wan" to the far side. In namespaces and guests, devices have the names of ports.
func Topologies() []record.Topology {
	return []record.Topology{
		chain("forward", "client lan router wan server", "client", "router"),
		chain("to-router", "client lan router", "client", "router"),
		// The peer between client and router is the near end of the tunnel. It serves clients that cannot run
		// a tunnel themselves.
		chain("peer-to-router", "client lan peer wan router", "peer", "router"),
		chain("site-to-site", "client lan-a router-a wan router-b lan-b server", "router-a", "router-b"),
		// This topology is a control. It shows what the tester and a tunnel achieve without a router.
		chain("direct", "client lan server", "client", "server"),
	}
}

// chain returns a topology whose nodes form a row. row alternates nodes and links, from near to far. The name
// of a link is the name of its ports, optionally followed by "-" and a letter. near and far are the ends of a
// tunnel.
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

// TopologyNamed returns the topology with the given name.
func TopologyNamed(name string) (record.Topology, error) {
	all := Topologies()
	i := slices.IndexFunc(all, func(t record.Topology) bool { return t.Name == name })
	if i < 0 {
		return record.Topology{}, fmt.Errorf("find topology %q: unknown", name)
	}

	return all[i], nil
}

// Slots is the number of paths that a lab can have at the same time: the plain path in slot 0, and up to
// Slots-1 tunnels. The destination address selects the path, so routes need not change between trials. The
// slot of each tunnel has its own far address and, in topology site-to-site, its own near address.
const Slots = 17

// addressPlan assigns addresses from the blocks reserved for benchmarking, 198.18.0.0/15 (RFC 2544 §C.2.2)
// and 2001:2::/48 (RFC 5180 §8).
type addressPlan struct{ topology record.Topology }

// link returns the IPv4 and IPv6 addresses of one end (0 or 1) of the i-th link.
func (addressPlan) link(i, end int) []netip.Prefix { return both(18, i+1, i+1, end, 24, 64) }

// tunnel returns the inner addresses of the near (0) or far (1) end of the tunnel in a slot.
func (addressPlan) tunnel(slot, end int) []netip.Prefix {
	return both(19, slot, 0x100+slot, end, 24, 64)
}

// behind returns those addresses of the near (0) or far (1) node that are reached only through the tunnel in
// a slot.
func (addressPlan) behind(slot, end int) []netip.Prefix {
	return both(19, 64+slot, 0x200+slot, end, 32, 128)
}

// both returns the IPv4 address of an end, which is in a subnet of 198.block.0.0/16, and its IPv6 address.
func both(block byte, subnet4, subnet6, end, bits4, bits6 int) []netip.Prefix {
	return []netip.Prefix{
		netip.PrefixFrom(netip.AddrFrom4([4]byte{198, block, byte(subnet4), byte(end + 1)}), bits4),
		netip.PrefixFrom(netip.AddrFrom16([16]byte{0x20, 0x01, 0, 2, 6: byte(subnet6 >> 8), 7: byte(subnet6),
			15: byte(end + 1)}), bits6),
	}
}

// family returns the IPv4 or the IPv6 address of a pair.
func family(pair []netip.Prefix, ip int) netip.Addr {
	if ip == 6 {
		return pair[1].Addr()
	}
	return pair[0].Addr()
}

// node returns the name of the near (0) or far (1) node.
func (p addressPlan) node(end int) string { return [2]string{p.topology.Near, p.topology.Far}[end] }

// linkOf returns the index of the link at a port of a node, and the end of the link at which the node is. If
// port is "", it uses the first port of the node.
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

// endAddress returns the address of the near (0) or far (1) node for a slot.
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

// outer returns the underlay address of the near (0) or far (1) end of a tunnel, on the link that both ends
// share.
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

// layouts returns the layouts of the nodes in a topology. Because the nodes form a chain, each node reaches
// the networks behind a neighbour through this neighbour.
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
				// Set this for each port. Existing devices have their own settings, and duplicate address
				// detection is off only if the setting of the device and that of "all" are both 0. During
				// detection, a link-local address, which neighbour discovery uses, is unusable for the first
				// one to two seconds.
				l.Sysctls = append(l.Sysctls, [2]string{"net.ipv6.conf." + end.Port + ".accept_dad", "0"},
					[2]string{"net.ipv6.conf." + end.Port + ".accept_ra", "0"})
				add(end.Port, p.link(li, e))
				l.Routes = append(l.Routes, p.routesOver(i, li, e)...)
			}
		}

		// Add the node's address for each slot to the only port of the near or far node.
		for side := range 2 {
			for slot := 1; slot < Slots && n.Name == p.node(side) && p.hasBehind(side); slot++ {
				add(l.Ports[0], p.behind(slot, side))
			}
		}

		out[i] = l
	}

	return out
}

// baseSysctls returns kernel settings for all nodes, which are written before links are brought up. They turn
// off the acceptance of router advertisements. They also turn off duplicate address detection, which would
// lose packets in the first second of a lab. On routers, they turn on forwarding.
func baseSysctls(router bool) [][2]string {
	s := [][2]string{{"net.ipv6.conf.all.accept_dad", "0"}, {"net.ipv6.conf.default.accept_dad", "0"},
		{"net.ipv6.conf.default.accept_ra", "0"}}
	if router {
		s = append(s, [2]string{"net.ipv4.ip_forward", "1"}, [2]string{"net.ipv6.conf.all.forwarding", "1"})
	}
	return s
}

// routesOver returns the routes of node i over end e of link li. They lead to all further links in that
// direction. Unless node i uses a tunnel for these addresses, they also lead to the slot addresses of the
// near or far node, which is at the end of the chain in that direction.
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
	// Links and nodes are numbered from near to far, so link li connects nodes li and li+1, and e == 0 means
	// towards the far side.
	step := 1 - 2*e
	for on := li + step; on >= 0 && on < len(p.topology.Links); on += step {
		add(p.link(on, 0))
	}

	tunnel := p.topology.Tunnel
	for slot := 1; slot < Slots; slot++ {
		side := 1 - e // 1 means the addresses of the far node
		if p.hasBehind(side) && p.leadsPlainly(i, side) {
			add(p.behind(slot, side))
		}

		// These are return routes to the inner addresses of a tunnel that ends on the near node. Nodes behind
		// the far end of the tunnel send packets to these addresses.
		if e == 1 && !p.hasBehind(0) && i > p.index(tunnel[1]) {
			add(p.tunnel(slot, 0))
		}

		// These are return routes for a tunnel that ends on the far node.
		if e == 0 && !p.hasBehind(1) && i < p.index(tunnel[0]) {
			add(p.tunnel(slot, 1))
		}
	}

	return out
}

// hasBehind reports whether the near (0) or far (1) node has an address for each slot. The node has them if
// the tunnel ends on another node.
func (p addressPlan) hasBehind(side int) bool { return p.topology.Tunnel[side] != p.node(side) }

// leadsPlainly reports whether node i reaches the slot addresses of the near (0) or far (1) node without
// itself sending packets into the tunnel. This applies to nodes at and beyond the end of the tunnel on that
// side. It also applies to nodes before the other end, because they send packets to that end, which sends
// them into the tunnel.
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
