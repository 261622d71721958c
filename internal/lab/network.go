package lab

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// network holds a lab's ends where the network between them is not the lab's own: others use it too,
// addresses and ports are discovered instead of chosen, and the path must be explored.
type network struct {
	ends map[int][2]Meeting // the near and the far node's addresses, by version of IP
	// outer holds the addresses at which the two ends of a tunnel reach each other.
	outer    map[int][2]netip.Addr
	why      map[int]string // why there is no path over another version
	farOpens int            // the version over which the far node may open connections to the near one
	mutual   bool           // the run may use either version
	ports    DataPorts
	tag      func(name string) string // what distinguishes the packets of that name from others'
	lost     error                    // why a lost node could not be reached again
	// reachable checks whether a third-party program is there; nil: the far node has an agent
	reachable func(ctx context.Context) error
}

// newNetwork looks for the ends over both versions of IP.
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
	Addr   netip.Addr // its own
	Target netip.Addr // where the other end finds it
}

// DataPorts are the listening ports of either machine.
type DataPorts struct{ Load, Echo, Check int }

// OwnNetwork reports whether the network between the ends is the lab's own.
func (l *Lab) OwnNetwork() bool { return l.network == nil }

// End returns the addresses of the near (0) or far (1) node on the path of a slot, or why there is no path
// over that version of IP.
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

// outer returns the address at which the other end of a tunnel reaches this one.
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

// FarMayOpen reports whether the far node may open connections to the near one.
func (l *Lab) FarMayOpen(ip int) bool {
	return l.network == nil || l.network.mutual || l.network.farOpens == ip
}

// Mutual reports whether either end may open connections over both versions of IP, because both run our
// agents.
func (l *Lab) Mutual() bool { return l.network == nil || l.network.mutual }

// Lost returns why the last Reconnect could not reach the far node, or another machine whose connection was
// lost; nil if all nodes are there or belong to the lab itself.
func (l *Lab) Lost() error {
	if l.network == nil {
		return nil
	}
	return l.network.lost
}

// Translated lists the ends whose addresses are translated on the path, over a version of IP: "near", "far",
// "near far" or "none"; "" if that is unknown.
func (l *Lab) Translated(ip int) string {
	if l.network == nil {
		return ""
	}

	var out []string
	ends := l.network.ends[ip]
	near := ends[0]
	far := ends[1]
	// Each end knows its translated address only for the version of the control connection.
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

// public reports whether a private address reaches this one only through translation (RFC 1918, RFC 4193).
func public(a netip.Addr) bool { return a.IsGlobalUnicast() && !a.IsPrivate() }

// DataPorts returns the ports that are open to the data; ok is false for a lab that owns its network.
func (l *Lab) DataPorts() (p DataPorts, ok bool) {
	if l.network == nil {
		return DataPorts{}, false
	}
	return l.network.ports, true
}

// Tag returns the text that distinguishes the packets of a trial from others. Where others may send packets
// too, only those who have the run's key can compute it, and it must not be shown.
func (l *Lab) Tag(name string) string {
	if l.network == nil {
		return name
	}
	return l.network.tag(name)
}

// Address returns the near (0) or far (1) node's address on the path of a slot.
func (l *Lab) Address(slot, end, ip int) netip.Addr { return l.plan.endAddress(slot, end, ip) }

// ForwardAddress returns the address at which the far side reaches the near node through a port forward: the
// address of the near side's router that faces the far side.
func (l *Lab) ForwardAddress(ip int) (netip.Addr, error) {
	if len(l.Topology.Routers) == 0 || l.Topology.Far == l.Topology.Routers[0] {
		return netip.Addr{}, fmt.Errorf("topology %s has no router to forward ports", l.Topology.Name)
	}

	i, e, ok := l.plan.linkOf(l.Topology.Routers[0], "wan")
	if !ok {
		return netip.Addr{}, fmt.Errorf("router %s has no port wan", l.Topology.Routers[0])
	}

	return family(l.plan.link(i, e), ip), nil
}

// Addresses lists each node's addresses on the plain path, IPv4 first.
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

// Neighbor returns the device at the other end of a node's first link, with its node.
func (l *Lab) Neighbor(node string) (record.TopoPort, bool) {
	i, e, ok := l.plan.linkOf(node, "")
	if !ok {
		return record.TopoPort{}, false
	}
	return l.Topology.Links[i].Ends[1-e], true
}
