package kernel

import (
	"fmt"
	"net"
	"net/netip"
)

// RouteDevice returns the device by which packets to an address leave.
func RouteDevice(to netip.Addr) (string, error) {
	w, err := WayTo(to)
	return w.Device, err
}

// wayBySocket looks up the route to an address by a connected socket that sends nothing: it yields the source
// address and its device, but not the neighbour.
func wayBySocket(to netip.Addr) (w Way, err error) {
	const discard = 9 // an arbitrary port, as one is required
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, discard)))
	if err != nil {
		return w, fmt.Errorf("find the way to %s: %w", to, err)
	}
	defer c.Close()
	w.Source = c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap().WithZone("")
	all, err := net.Interfaces()
	if err != nil {
		return Way{}, fmt.Errorf("find the way to %s: list the devices: %w", to, err)
	}

	for _, i := range all {
		addresses, err := i.Addrs()
		if err != nil {
			continue // it is gone
		}

		for _, a := range addresses {
			p, err := netip.ParsePrefix(a.String())
			if err == nil && p.Addr().Unmap() == w.Source {
				w.Device = i.Name
				return w, nil
			}
		}
	}

	return Way{}, fmt.Errorf("find the way to %s: no device has its source %s", to, w.Source)
}
