package lab

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/check"
)

// rightsOf describes the rights of a user on a machine.
func rightsOf(root, sudo bool) string {
	switch {
	case root:
		return RightsOfRoot
	case sudo:
		return RightsBySudo
	}
	return NoRights
}

// distinct returns an error if two nodes are the same machine.
func (x *surveyed) distinct() error {
	is := map[string]string{}
	for _, n := range x.l.Topology.Nodes {
		id := x.own[n.Name].Machine
		other := is[id]
		if id != "" && other != "" {
			return check.WithHint(fmt.Errorf("%s (%s) and %s (%s) are the same machine", other,
				x.r.machine(other).At, n.Name, x.r.machine(n.Name).At), "name a machine of its own for each")
		}

		is[id] = n.Name
	}
	return nil
}

// across discovers the devices of the router that lead to the two ends.
func (x *surveyed) across(ctx context.Context, router string, c crossing) error {
	if x.own[router].Own == nil {
		return nil
	}

	f, err := x.ask(ctx, router, c.near.Source, c.target)
	if err != nil {
		return err
	}

	c.toNear = f.Ways[0]
	c.toFar = f.Ways[1]
	m := x.r.Machines.Router
	lan := cmp.Or(m.LAN, c.toNear.Device)
	wan := cmp.Or(m.WAN, c.toFar.Device)
	switch {
	case lan == "" || wan == "":
		return fmt.Errorf("the router has no route to %s and %s", c.near.Source, c.target)
	case lan == wan:
		return check.WithHint(fmt.Errorf("the router reaches both ends, %s and %s, by %s: the data would "+
			"not cross it", c.near.Source, c.target, lan),
			"name the addresses on its two sides: --client-address, --server-address")
	}

	x.faces(router, "lan", lan)
	x.faces(router, "wan", wan)
	x.crossings[versionOf(c.target)] = c
	return nil
}

// alone discovers the ports of a router in a lab without ends. The LAN port is the device towards the
// controller. The WAN port is the device of the default route. If only one of the two devices is known, it is
// used for both ports.
func (x *surveyed) alone(ctx context.Context, router string) error {
	f, err := x.ask(ctx, router, elsewhere...)
	if err != nil {
		return err
	}

	m := x.r.Machines.Router
	by := x.l.management[router]
	wan := cmp.Or(m.WAN, f.Ways[0].Device, f.Ways[1].Device, by, m.LAN)
	if wan == "" {
		return check.WithHint(fmt.Errorf("the router's ports are not known: it has no default route"),
			"name its devices: --router-lan, --router-wan")
	}

	x.faces(router, "lan", cmp.Or(m.LAN, by, wan))
	x.faces(router, "wan", wan)
	x.l.Note += fmt.Sprintf("; lan is %s, wan is %s; traffic through it is not tried for lack of ends: name "+
		"them to lab check, by --client and --server", x.l.Device(router, "lan"), wan)
	return nil
}

// faces records the device of a port of a node. If IPv4 and IPv6 use different devices, it keeps the device
// that was recorded first.
func (x *surveyed) faces(node, port, device string) {
	if x.devices[node] == nil {
		x.devices[node] = map[string]string{}
	}

	if x.devices[node][port] == "" && device != "" {
		x.devices[node][port] = device
	}
}

func listed(all []netip.Addr) string {
	var out []string
	for _, a := range all {
		out = append(out, a.String())
	}
	return strings.Join(out, ", ")
}
