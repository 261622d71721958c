package kernel

import (
	"errors"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// divertTable is the number of our routing table. It is also the priority of the rule that makes the kernel
// look up this table before the main table.
const divertTable = 1018

// Divert redirects packets from one device to another, which is point-to-point, as long as the latter exists.
// It redirects packets that would use a route of the first device with a gateway, and packets to the
// addresses in others. It does not change the routes of the first device.
func Divert(from, to string, others ...netip.Addr) (err error) {
	defer func() {
		if err != nil {
			err = explain(errors.Join(err, EndDivert()), "divert routes of %s to %s", from, to)
		}
	}()
	routes, err := routesOf(from, netlink.FAMILY_ALL)
	if err != nil {
		return err
	}

	out, err := find(to)
	if err != nil {
		return err
	}

	for _, a := range others {
		routes = append(routes, netlink.Route{Dst: ipNet(netip.PrefixFrom(a, a.BitLen())), Gw: a.AsSlice()})
	}

	for _, r := range routes {
		if r.Gw == nil || r.Dst == nil {
			continue
		}

		new := &netlink.Route{Dst: r.Dst, LinkIndex: out.Attrs().Index, Table: divertTable}
		if r.Dst.IP.To4() != nil {
			new.Scope = netlink.SCOPE_LINK
		}

		if err := netlink.RouteReplace(new); err != nil {
			return err
		}
	}

	for _, f := range []int{unix.AF_INET, unix.AF_INET6} {
		if err := ignore(netlink.RuleAdd(divertRule(f)), unix.EEXIST); err != nil {
			return err
		}
	}

	return nil
}

func divertRule(family int) *netlink.Rule {
	r := netlink.NewRule()
	r.Family = family
	r.Priority = divertTable
	r.Table = divertTable
	return r
}

// EndDivert removes the rules that Divert added. The routes in our table vanish with the point-to-point
// device.
func EndDivert() error {
	var err error
	for _, f := range []int{unix.AF_INET, unix.AF_INET6} {
		err = errors.Join(err, ignore(netlink.RuleDel(divertRule(f)), unix.ENOENT))
		routes, listErr := netlink.RouteListFiltered(f, &netlink.Route{Table: divertTable},
			netlink.RT_FILTER_TABLE)
		if err = errors.Join(err, listErr); listErr != nil {
			continue
		}

		for _, r := range routes {
			err = errors.Join(err, ignore(netlink.RouteDel(&r), unix.ESRCH))
		}
	}
	return explain(err, "end the diverting of routes")
}

// DefaultDevices returns the devices of all IPv4 and IPv6 default routes, in all routing tables.
func DefaultDevices() ([]string, error) {
	return defaultDevices(func(netlink.Route) bool { return true })
}

// AdvertisedDevices returns the devices of the IPv6 default routes that were learned from router
// advertisements.
func AdvertisedDevices() ([]string, error) {
	return defaultDevices(func(r netlink.Route) bool { return r.Protocol == unix.RTPROT_RA })
}

func defaultDevices(which func(netlink.Route) bool) (out []string, err error) {
	routes, err := dump(func() ([]netlink.Route, error) {
		return netlink.RouteListFiltered(unix.AF_UNSPEC, &netlink.Route{Table: unix.RT_TABLE_UNSPEC},
			netlink.RT_FILTER_TABLE)
	})
	for _, r := range routes {
		if r.Dst != nil && prefixOf(r.Dst).Bits() != 0 || !which(r) {
			continue
		}

		devices := []int{r.LinkIndex}
		for _, hop := range r.MultiPath {
			devices = append(devices, hop.LinkIndex)
		}

		for _, device := range devices {
			if l, err := netlink.LinkByIndex(device); err == nil {
				out = append(out, l.Attrs().Name)
			}
		}
	}
	return out, explain(err, "find the default routes")
}

// Neighbourly returns the IPv4 routes of a device that have a gateway.
func Neighbourly(dev string) (out []Via, err error) {
	routes, err := routesOf(dev, unix.AF_INET)
	for _, r := range routes {
		if gw, ok := netip.AddrFromSlice(r.Gw); ok && r.Dst != nil {
			out = append(out, Via{prefixOf(r.Dst), gw.Unmap()})
		}
	}
	return out, explain(err, "list routes of %s", dev)
}

// ProbePPPoE returns an error if the kernel does not support PPPoE. The call may make the kernel load the
// module.
func ProbePPPoE() error {
	const pppox, pppoe = 24, 0 // AF_PPPOX and PX_PROTO_OE in linux/if_pppox.h
	fd, err := unix.Socket(pppox, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, pppoe)
	if err != nil {
		return explain(err, "open a PPPoE socket")
	}

	return unix.Close(fd)
}
