package lab

import (
	"fmt"
	"net/netip"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Topologies are the shapes a lab can have, in the order they are listed. Ports face the near side ("lan")
// or the far side ("wan") of a router; the port's name is also the device's.
func Topologies() []record.Topology {
	port := func(node, name string) record.TopoPort { return record.TopoPort{Node: node, Port: name} }
	link := func(name string, a, b record.TopoPort) record.TopoLink {
		return record.TopoLink{Name: name, Ends: [2]record.TopoPort{a, b}}
	}
	return []record.Topology{
		{
			Name:  "forward",
			Nodes: []record.TopoNode{{Name: "client"}, {Name: "router", Router: true}, {Name: "server"}},
			Links: []record.TopoLink{link("lan", port("client", "lan"), port("router", "lan")),
				link("wan", port("router", "wan"), port("server", "wan"))},
			Near:    "client",
			Far:     "server",
			Tunnel:  [2]string{"client", "router"},
			Routers: []string{"router"},
		},
		{
			Name:    "to-router",
			Nodes:   []record.TopoNode{{Name: "client"}, {Name: "router", Router: true}},
			Links:   []record.TopoLink{link("lan", port("client", "lan"), port("router", "lan"))},
			Near:    "client",
			Far:     "router",
			Tunnel:  [2]string{"client", "router"},
			Routers: []string{"router"},
		},
		{
			// To the router by a peer between: it holds the tunnel's near end, where the client's kernel,
			// or the client, could not.
			Name: "peer-to-router",
			Nodes: []record.TopoNode{{Name: "client"}, {Name: "peer", Router: true},
				{Name: "router", Router: true}},
			Links: []record.TopoLink{link("lan", port("client", "lan"), port("peer", "lan")),
				link("wan", port("peer", "wan"), port("router", "wan"))},
			Near:    "client",
			Far:     "router",
			Tunnel:  [2]string{"peer", "router"},
			Routers: []string{"router"},
		},
		{
			Name: "site-to-site",
			Nodes: []record.TopoNode{{Name: "client"}, {Name: "router-a", Router: true},
				{Name: "router-b", Router: true}, {Name: "server"}},
			Links: []record.TopoLink{link("lan-a", port("client", "lan"), port("router-a", "lan")),
				link("wan", port("router-a", "wan"), port("router-b", "wan")),
				link("lan-b", port("router-b", "lan"), port("server", "lan"))},
			Near:    "client",
			Far:     "server",
			Tunnel:  [2]string{"router-a", "router-b"},
			Routers: []string{"router-a", "router-b"},
		},
		{
			// The control: what tester and tunnel do with no router between.
			Name:   "direct",
			Nodes:  []record.TopoNode{{Name: "client"}, {Name: "server"}},
			Links:  []record.TopoLink{link("lan", port("client", "lan"), port("server", "lan"))},
			Near:   "client",
			Far:    "server",
			Tunnel: [2]string{"client", "server"},
		},
	}
}

// TopologyNamed finds one of Topologies.
func TopologyNamed(name string) (record.Topology, error) {
	for _, t := range Topologies() {
		if t.Name == name {
			return t, nil
		}
	}
	return record.Topology{}, fmt.Errorf("find topology %q: unknown", name)
}

// A lab carries the plain path and up to Slots-1 tunnels at the same time. The paths are told apart by
// their addresses, so that nothing need be rerouted from one trial to the next: slot 0 is the plain path,
// each other slot has a far (and, site to site, a near) address of its own behind its tunnel.
const Slots = 17

// Addresses of the plan, from the blocks set aside for benchmarking: 198.18.0.0/15 (RFC 2544 §C.2.2) and
// 2001:2::/48 (RFC 5180 §8).
type addressPlan struct{ topology record.Topology }

// link returns both addresses of an end (0 or 1) of the topology's i-th link.
func (addressPlan) link(i, end int) [2]netip.Prefix {
	return [2]netip.Prefix{
		netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 18, byte(i + 1), byte(end + 1)}), 24),
		netip.PrefixFrom(v6(uint16(i+1), uint16(end+1)), 64),
	}
}

// tunnel returns the inner addresses of an end (0 near, 1 far) of a slot.
func (addressPlan) tunnel(slot, end int) []netip.Prefix {
	return []netip.Prefix{
		netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 19, byte(slot), byte(end + 1)}), 24),
		netip.PrefixFrom(v6(0x100+uint16(slot), uint16(end+1)), 64),
	}
}

// behind returns the host addresses that only a slot's path leads to, at the near (0) or far (1) node.
func (addressPlan) behind(slot, end int) []netip.Prefix {
	return []netip.Prefix{
		netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 19, byte(64 + slot), byte(end + 1)}), 32),
		netip.PrefixFrom(v6(0x200+uint16(slot), uint16(end+1)), 128),
	}
}

func v6(subnet, host uint16) netip.Addr {
	return netip.AddrFrom16([16]byte{0x20, 0x01, 0, 2, 0, 0, byte(subnet >> 8), byte(subnet),
		14: byte(host >> 8), 15: byte(host)})
}

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

// family picks the IPv4 or IPv6 one of a pair.
func family(pair []netip.Prefix, ip int) netip.Addr {
	if ip == 6 {
		return pair[1].Addr()
	}
	return pair[0].Addr()
}

// endAddress is the address of the near (0) or far (1) node on a slot's path.
func (p addressPlan) endAddress(slot, end, ip int) netip.Addr {
	node := p.topology.Near
	if end == 1 {
		node = p.topology.Far
	}
	if slot > 0 {
		if p.topology.Tunnel[end] == node {
			return family(p.tunnel(slot, end), ip) // the tunnel ends on the node itself
		}
		return family(p.behind(slot, end), ip)
	}
	i, e, _ := p.linkOf(node, "")
	pair := p.link(i, e)
	return family(pair[:], ip)
}

// outer is the underlay address of a tunnel's near (0) or far (1) end: the one on the link that the two
// ends share.
func (p addressPlan) outer(end, ip int) netip.Addr {
	for i, l := range p.topology.Links {
		for e, q := range l.Ends {
			if q.Node == p.topology.Tunnel[end] && l.Ends[1-e].Node == p.topology.Tunnel[1-end] {
				pair := p.link(i, e)
				return family(pair[:], ip)
			}
		}
	}
	return netip.Addr{}
}
