package kernel

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
)

// OwnAddresses returns the addresses of this machine, each once.
func OwnAddresses() (out []netip.Addr, err error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("list the machine's addresses: %w", err)
	}

	for _, text := range all {
		p, err := netip.ParsePrefix(text.String())
		if a := p.Addr().Unmap(); err == nil && !slices.Contains(out, a) {
			out = append(out, a)
		}
	}

	return out, nil
}

// RouteDevice returns the device of the route to an address.
func RouteDevice(to netip.Addr) (string, error) {
	w, err := WayTo(to)
	return w.Device, err
}

// wayBySocket looks up the route to an address with a connected UDP socket, which sends no packet. It returns
// the source address and the device, but not the gateway.
func wayBySocket(to netip.Addr) (w Way, err error) {
	const discard = 9 // connect requires a port, but the lookup does not use it
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
			continue // because the device has disappeared
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
