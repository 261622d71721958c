package kernel

import (
	"errors"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// AddAddress adds an address to a device. An IPv6 address is usable at once, because duplicate address
// detection is skipped. It is not an error if the device already has the address.
func AddAddress(dev string, p netip.Prefix) error {
	return withLink(dev, "add address "+p.String()+" to", func(l netlink.Link) error {
		a := &netlink.Addr{IPNet: ipNet(p)}
		if p.Addr().Is6() {
			a.Flags = unix.IFA_F_NODAD
		}
		return ignore(netlink.AddrAdd(l, a), unix.EEXIST)
	})
}

// DelAddress removes an address from a device. It is not an error if the device does not have the address.
func DelAddress(dev string, p netip.Prefix) error {
	return withLink(dev, "delete address "+p.String()+" of", func(l netlink.Link) error {
		return ignore(netlink.AddrDel(l, &netlink.Addr{IPNet: ipNet(p)}), unix.EADDRNOTAVAIL)
	})
}

// Addresses returns a device's addresses, except link-local ones.
func Addresses(dev string) ([]netip.Prefix, error) {
	l, err := find(dev)
	var list []netlink.Addr
	if err == nil {
		list, err = dump(func() ([]netlink.Addr, error) { return netlink.AddrList(l, netlink.FAMILY_ALL) })
	}

	var out []netip.Prefix
	for _, a := range list {
		p := prefixOf(a.IPNet)
		if p.IsValid() && !p.Addr().IsLinkLocalUnicast() {
			out = append(out, p)
		}
	}

	return out, explain(err, "list addresses of %s", dev)
}

// AddRoute adds or replaces a route to dst through gateway via on device dev. If via is invalid, dst is on
// the link. If dev is "", the kernel derives the device from the gateway.
func AddRoute(dst netip.Prefix, via netip.Addr, dev string) error {
	r, err := route(dst, via, dev)
	if err == nil {
		err = netlink.RouteReplace(r)
	}
	return explain(err, "add route to %s via %s dev %s", dst, orLink(via), dev)
}

// AddRouteFrom adds or replaces a route to dst on the link of dev. mtu is in bytes, and src is the preferred
// source address unless it is invalid. DelRoute deletes the route.
func AddRouteFrom(dst netip.Prefix, dev string, src netip.Addr, mtu int) error {
	r, err := route(dst, netip.Addr{}, dev)
	if err == nil {
		r.MTU = mtu
		if src.IsValid() {
			r.Src = src.AsSlice()
		}

		err = netlink.RouteReplace(r)
	}
	return explain(err, "add route to %s from %s dev %s", dst, orLink(src), dev)
}

// DelRoute deletes a route added by AddRoute. It is not an error if the route or its device does not exist.
func DelRoute(dst netip.Prefix, via netip.Addr, dev string) error {
	r, err := route(dst, via, dev)
	if err == nil {
		err = netlink.RouteDel(r)
	}

	return explain(ignore(err, unix.ESRCH, ErrAbsent), "delete route to %s via %s dev %s", dst, orLink(via),
		dev)
}

// routesOf returns the routes of a device.
func routesOf(dev string, family int) ([]netlink.Route, error) {
	l, err := find(dev)
	if err != nil {
		return nil, err
	}
	return dump(func() ([]netlink.Route, error) { return netlink.RouteList(l, family) })
}

// ForgetPathMTUs6 drops the IPv6 path MTUs that the kernel has learnt (RFC 8201), like "ip -6 route flush
// cache".
func ForgetPathMTUs6() error {
	all, err := dumpMessages(unix.NETLINK_ROUTE, unix.RTM_GETROUTE, unix.RTM_NEWROUTE,
		&nl.RtMsg{RtMsg: unix.RtMsg{Family: unix.AF_INET6}})
	for _, m := range all {
		if nl.DeserializeRtMsg(m).Flags&unix.RTM_F_CLONED != 0 {
			drop := nl.NewNetlinkRequest(unix.RTM_DELROUTE, unix.NLM_F_ACK)
			drop.AddRawData(m)
			_, dropErr := drop.Execute(unix.NETLINK_ROUTE, 0)
			err = errors.Join(err, ignore(dropErr, unix.ESRCH))
		}
	}

	return explain(err, "forget the MTU of paths over IPv6")
}

// WayTo looks up the route to an address.
func WayTo(to netip.Addr) (Way, error) {
	r, l, err := routeTo(to)
	if err != nil {
		return Way{}, err
	}

	w := Way{Device: l.Attrs().Name}
	if via, ok := netip.AddrFromSlice(r.Gw); ok {
		w.Via = via.Unmap()
	}

	if from, ok := netip.AddrFromSlice(r.Src); ok {
		w.Source = from.Unmap()
	}

	return w, nil
}

// routeTo returns the route to an address and its device.
func routeTo(to netip.Addr) (netlink.Route, netlink.Link, error) {
	reportDetails()
	routes, err := netlink.RouteGet(to.AsSlice())
	if err == nil && len(routes) == 0 {
		err = ErrAbsent
	}

	if err != nil {
		return netlink.Route{}, nil, explain(err, "look up route to %s", to)
	}

	l, err := netlink.LinkByIndex(routes[0].LinkIndex)
	return routes[0], l, explain(err, "look up route to %s", to)
}

// NextHop returns the first neighbour on the path to an address. The hardware address of the neighbour is
// known only if the kernel has resolved it recently.
func NextHop(to netip.Addr) (h Hop, err error) {
	r, l, err := routeTo(to)
	if err != nil {
		return h, err
	}

	a := l.Attrs()
	h = Hop{
		Device:   a.Name,
		Index:    a.Index,
		Kind:     l.Type(),
		RxQueues: rxQueues(a),
		Source:   a.HardwareAddr,
		Addr:     to,
	}
	if gw, ok := netip.AddrFromSlice(r.Gw); ok {
		h.Addr = gw.Unmap()
	}

	list, err := dump(func() ([]netlink.Neigh, error) { return netlink.NeighList(a.Index, familyOf(h.Addr)) })
	if err != nil {
		return h, explain(err, "list neighbours on %s", a.Name)
	}

	for _, n := range list {
		if ip, ok := netip.AddrFromSlice(n.IP); ok && ip.Unmap() == h.Addr &&
			n.State&(netlink.NUD_INCOMPLETE|netlink.NUD_FAILED) == 0 {
			h.MAC = n.HardwareAddr
		}
	}

	return h, nil
}

func familyOf(a netip.Addr) int {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

func route(dst netip.Prefix, via netip.Addr, dev string) (*netlink.Route, error) {
	r := &netlink.Route{Dst: ipNet(dst.Masked())}
	if via.IsValid() {
		r.Gw = via.AsSlice()
	} else if dst.Addr().Is4() {
		r.Scope = netlink.SCOPE_LINK
	}

	if dev == "" {
		reportDetails()
		return r, nil
	}

	l, err := find(dev)
	if err != nil {
		return nil, err
	}

	r.LinkIndex = l.Attrs().Index
	return r, nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// prefixOf converts a net.IPNet. The result is invalid if n is not a network.
func prefixOf(n *net.IPNet) netip.Prefix {
	ip, _ := netip.AddrFromSlice(n.IP)
	bits, _ := n.Mask.Size()
	return netip.PrefixFrom(ip.Unmap(), bits)
}

func orLink(a netip.Addr) string {
	if !a.IsValid() {
		return "link"
	}
	return a.String()
}
