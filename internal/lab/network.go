package lab

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// network describes a network that connects the ends of a lab but does not belong to the lab. The network has
// other users. Its addresses and ports are discovered, and the path through it is unknown.
type network struct {
	ends map[int][2]Meeting // addresses of the near and the far node by IP version
	// outer contains the underlay addresses of the two ends of a tunnel by IP version.
	outer    map[int][2]netip.Addr
	why      map[int]string // reason why there is no path, by IP version
	farOpens int            // IP version with which the far node may open connections
	mutual   bool           // whether both ends may open connections with both IP versions
	ports    DataPorts
	tag      func(name string) string // returns a string that distinguishes our packets from those of others
	lost     error                    // reason why a lost node could not be reached again
	// reachable checks whether a third-party server responds. If nil, the far node has an agent.
	reachable func(ctx context.Context) error
}

// newNetwork returns a network whose ends are determined by calling find for both IP versions.
func newNetwork(ports DataPorts, tag func(string) string, find func(ip int) ([2]Meeting, error)) *network {
	n := &network{
		ends:  map[int][2]Meeting{},
		why:   map[int]string{},
		outer: map[int][2]netip.Addr{},
		ports: ports,
		tag:   tag,
	}
	for _, ip := range []int{4, 6} {
		if ends, err := find(ip); err != nil {
			n.why[ip] = err.Error()
		} else {
			n.ends[ip] = ends
		}
	}
	return n
}

// Meeting holds the addresses of one end of a path.
type Meeting struct {
	Addr   netip.Addr // address on the machine at this end
	Target netip.Addr // address to which the other end sends
}

// DataPorts holds the listening ports for data. They are the same on both machines.
type DataPorts struct{ Load, Echo, Check int }

// OwnNetwork reports whether the network between the ends belongs to the lab.
func (l *Lab) OwnNetwork() bool { return l.network == nil }

// End returns the addresses of the near (0) or far (1) node for a slot. It returns an error if there is no
// path with the IP version.
func (l *Lab) End(slot, end, ip int) (Meeting, error) {
	if l.network == nil {
		a := l.Address(slot, end, ip)
		return Meeting{a, a}, nil
	}

	ends, ok := l.network.ends[ip]
	if !ok {
		return Meeting{}, fmt.Errorf("no path over IPv%d: %s", ip, l.network.why[ip])
	}

	if slot > 0 {
		a := l.Address(slot, end, ip)
		return Meeting{a, a}, nil
	}

	return ends[end], nil
}

// outer returns the underlay address of the near (0) or far (1) end of a tunnel.
func (l *Lab) outer(end, ip int) (netip.Addr, error) {
	if l.network == nil {
		return l.plan.outer(end, ip), nil
	}

	a := l.network.outer[ip][end]
	if !a.IsValid() {
		return a, fmt.Errorf("no path over IPv%d from %s to %s", ip, l.Topology.Tunnel[0],
			l.Topology.Tunnel[1])
	}

	return a, nil
}

// FarMayOpen reports whether the far node may open connections to the near node.
func (l *Lab) FarMayOpen(ip int) bool { return l.Mutual() || l.network.farOpens == ip }

// Mutual reports whether both ends may open connections with both IP versions. They may if both run our
// agents.
func (l *Lab) Mutual() bool { return l.network == nil || l.network.mutual }

// Lost returns the reason why the last Reconnect could not reach a machine whose connection was lost. It
// returns nil if all nodes were reached or belong to the lab.
func (l *Lab) Lost() error {
	if l.network == nil {
		return nil
	}
	return l.network.lost
}

// Translated returns the ends whose addresses are translated on the path with an IP version: "near", "far",
// "near far" or "none". It returns "" if this is unknown.
func (l *Lab) Translated(ip int) string {
	if l.network == nil {
		return ""
	}

	var out []string
	ends := l.network.ends[ip]
	near := ends[0]
	far := ends[1]
	// The ends learn translated addresses only from the control connection, and therefore only for its IP
	// version.
	told := l.network.farOpens == ip
	if near.Addr != near.Target || !told && near.Addr.IsPrivate() && public(far.Target) {
		out = append(out, "near")
	}

	if far.Addr != far.Target {
		out = append(out, "far")
	}

	if len(out) == 0 && told {
		return "none"
	}

	return strings.Join(out, " ")
}

// public reports whether hosts with private addresses can reach a only through address translation (RFC 1918,
// RFC 4193).
func public(a netip.Addr) bool { return a.IsGlobalUnicast() && !a.IsPrivate() }

// DataPorts returns the ports for data. ok is false if the network belongs to the lab.
func (l *Lab) DataPorts() (p DataPorts, ok bool) {
	if l.network != nil {
		p = l.network.ports
	}
	return p, l.network != nil
}

// Tag returns a text that distinguishes the packets of a trial from others. On a shared network, the text is
// a secret that is computed with the key of the run.
func (l *Lab) Tag(name string) string {
	if l.network == nil {
		return name
	}
	return l.network.tag(name)
}

// Address returns the address of the near (0) or far (1) node for a slot.
func (l *Lab) Address(slot, end, ip int) netip.Addr { return l.plan.endAddress(slot, end, ip) }

// ForwardAddress returns the address at which the far node reaches the near node through a port forward. This
// is the address of the first router's WAN port.
func (l *Lab) ForwardAddress(ip int) (a netip.Addr, err error) {
	if len(l.Topology.Routers) == 0 || l.Topology.Far == l.Topology.Routers[0] {
		return a, fmt.Errorf("topology %s has no router to forward ports", l.Topology.Name)
	}

	i, e, ok := l.plan.linkOf(l.Topology.Routers[0], "wan")
	if !ok {
		return a, fmt.Errorf("router %s has no port wan", l.Topology.Routers[0])
	}

	return family(l.plan.link(i, e), ip), nil
}

// Addresses returns the addresses of each node on the plain path, the IPv4 address first.
func (l *Lab) Addresses() map[string][]netip.Addr {
	out := map[string][]netip.Addr{}
	for i, link := range l.Topology.Links {
		for e, end := range link.Ends {
			for _, a := range l.plan.link(i, e) {
				out[end.Node] = append(out[end.Node], a.Addr())
			}
		}
	}
	return out
}

// Hops returns the addresses of the routers on the plain path of the lab's own network, the nearest first.
// Each is the address of the port at which packets from the near node arrive.
func (l *Lab) Hops(ip int) (out []netip.Addr) {
	for i := range l.Topology.Links[1:] {
		out = append(out, family(l.plan.link(i, 1), ip))
	}
	return out
}

// Neighbor returns the port at the other end of the first link of a node.
func (l *Lab) Neighbor(node string) (port record.TopoPort, ok bool) {
	i, e, ok := l.plan.linkOf(node, "")
	if ok {
		port = l.Topology.Links[i].Ends[1-e]
	}
	return port, ok
}

// Management returns the device through which a node is reached. It returns "" if the device is unknown or
// there is none.
func (l *Lab) Management(node string) string { return l.management[node] }

// Contact returns the address of the far end to which data is sent, if this address was chosen only because
// ssh reaches the far end there. It returns the zero Addr if the address was given, was discovered in another
// way, or is the only address.
func (l *Lab) Contact() netip.Addr { return l.contact }
