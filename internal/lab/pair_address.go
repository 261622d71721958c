package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
)

func versionOf(a netip.Addr) int {
	if a.Unmap().Is4() {
		return 4
	}
	return 6
}

// usable are addresses that data can be sent to: a link-local one is not without its link.
func usable(a netip.Addr) bool {
	return a.IsValid() && !a.IsLinkLocalUnicast() && !a.IsMulticast() && !a.IsUnspecified()
}

// endsOf finds where both machines are over a version of IP. Over the one of the connection they have met;
// over the other the peer is looked for by its name, or by the addresses that it says it has.
func (p *peering) endsOf(ctx context.Context, address string, ip int) (ends [2]Meeting, err error) {
	if at := p.visit.Remote.Addr(); versionOf(at) == ip {
		if !usable(at) {
			return ends, fmt.Errorf("%s is an address of one link only", at)
		}
		return [2]Meeting{{Addr: p.visit.Local.Addr(), Target: p.about.Remote},
			{Addr: p.about.Local, Target: at}}, nil
	}
	candidates, err := p.candidates(ctx, address, ip)
	if err != nil {
		return ends, err
	}
	var target, near netip.Addr
	for _, target = range candidates {
		if near, err = sourceTo(ctx, target); err == nil {
			break
		}
	}
	if err != nil {
		return ends, err
	}
	far := Meeting{Addr: target, Target: target}
	if !slices.Contains(p.about.Addresses, target) { // behind a translation
		far.Addr = netip.IPv4Unspecified()
		if ip == 6 {
			far.Addr = netip.IPv6Unspecified()
		}
	}
	return [2]Meeting{{Addr: near, Target: near}, far}, nil
}

// sourceTo is the address from which this machine would send to a target.
func sourceTo(ctx context.Context, target netip.Addr) (netip.Addr, error) {
	// Connecting a socket sends nothing; it asks the kernel for the route.
	var d net.Dialer
	c, err := d.DialContext(ctx, fmt.Sprintf("udp%d", versionOf(target)), netip.AddrPortFrom(target,
		9).String())
	if err != nil {
		return netip.Addr{}, fmt.Errorf("no route to %s", target)
	}
	defer c.Close()
	local, err := netip.ParseAddrPort(c.LocalAddr().String())
	return local.Addr().Unmap(), err
}

// endsTowards finds the ends of the path to a machine by its name or address.
func endsTowards(ctx context.Context, name string, ip int) (ends [2]Meeting, err error) {
	target, err := netip.ParseAddr(name)
	if err != nil {
		found, _ := net.DefaultResolver.LookupNetIP(ctx, fmt.Sprintf("ip%d", ip), name) // none is none
		i := slices.IndexFunc(found, usable)
		if i < 0 {
			return ends, fmt.Errorf("%s has no address of IPv%d", name, ip)
		}
		target = found[i]
	}
	target = target.Unmap()
	if versionOf(target) != ip || !usable(target) {
		return ends, fmt.Errorf("%s is no address of IPv%d that data can be sent to", name, ip)
	}
	near, err := sourceTo(ctx, target)
	return [2]Meeting{{Addr: near, Target: near}, {Addr: target, Target: target}}, err
}

// candidates are where the peer may be found over a version of IP, the likeliest first.
func (p *peering) candidates(ctx context.Context, address string, ip int) (out []netip.Addr, err error) {
	name, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if _, err := netip.ParseAddr(name); err != nil { // a name
		// or its own addresses
		found, _ := net.DefaultResolver.LookupNetIP(ctx, fmt.Sprintf("ip%d", ip), name)
		for _, a := range found {
			if usable(a) {
				out = append(out, a.Unmap())
			}
		}
	}
	for _, a := range p.about.Addresses {
		if versionOf(a) == ip && usable(a) && a.IsLoopback() == p.visit.Remote.Addr().IsLoopback() {
			out = append(out, a)
		}
	}
	if len(out) == 0 {
		return nil, errors.New("the peer has no address for it")
	}
	return out, nil
}

// elsewhere are addresses that nobody has (RFC 5737, RFC 3849).
var elsewhere = [...]netip.Addr{netip.AddrFrom4([4]byte{192, 0, 2, 1}),
	netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 15: 1})}

// OwnAddresses are those of this machine by which others may reach it: first those that it uses towards the
// world, those of the loopback device last.
func OwnAddresses(ctx context.Context) ([]netip.Addr, error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("list the machine's addresses: %w", err)
	}
	var out, loop []netip.Addr
	for _, far := range elsewhere {
		if a, err := sourceTo(ctx, far); err == nil && usable(a) {
			out = append(out, a)
		}
	}
	for _, a := range all {
		p, err := netip.ParsePrefix(a.String())
		switch {
		case err != nil || !usable(p.Addr()) || slices.Contains(out, p.Addr().Unmap()):
		case p.Addr().IsLoopback():
			loop = append(loop, p.Addr().Unmap())
		default:
			out = append(out, p.Addr().Unmap())
		}
	}
	return append(out, loop...), nil
}
