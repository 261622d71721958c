package isp

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"time"

	"golang.org/x/net/ipv6"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
)

// linkLocal is the link-local address of the provider's router on every link.
var linkLocal = netip.MustParsePrefix("fe80::1/64")

// serveIPv6 makes the provider the router of the port's IPv6 link: it adds addresses and starts router
// advertisements and DHCPv6. With PPPoE, it only adds an address, and overSession serves the link of each
// session. It returns host.ErrUnsupported if the machine cannot serve IPv6, or if it would lose its own
// default route by serving it.
func (p *provider) serveIPv6(ctx context.Context, undo *host.Undoing) error {
	i, err := macOf(p.Device)
	own := []netip.Prefix{linkLocal, p.Link()}
	switch {
	case err != nil:
	case p.Kind == knob.PPPoE:
		own = []netip.Prefix{netip.PrefixFrom(p.Link().Addr(), 128)}
		err = speaksIPv6(p.Device)
	default:
		err = beRouter(p.Device, undo)
	}

	if err != nil {
		return err
	}

	has, err := i.Addrs()
	if err != nil {
		return fmt.Errorf("list addresses of %s: %w", p.Device, err)
	}

	for _, a := range own {
		if slices.ContainsFunc(has, func(h net.Addr) bool { return h.String() == a.String() }) {
			continue
		}

		undo.Add(func() error { return kernel.DelAddress(p.Device, a) })
		if err := kernel.AddAddress(p.Device, a); err != nil {
			return err
		}
	}

	if p.Kind == knob.PPPoE {
		return nil
	}

	return p.serveLink(ctx, i, p.bindings(i.HardwareAddr, p.Link()), undo)
}

// overSession serves IPv6 on the device of the n-th PPPoE session, once both ends have negotiated IPv6 (RFC
// 5072). The link of the session uses the n-th network after that of the port. overSession adds functions to
// undo that end DHCPv6 and router advertisements. The address vanishes with the device.
func (p *provider) overSession(ctx context.Context, dev string, n int, gone <-chan struct{},
	undo *host.Undoing) error {
	err := await(ctx, dev, gone, func(a netip.Addr) bool { return a == linkLocal.Addr() })
	if err != nil {
		return err
	}

	port, err := macOf(p.Device)
	if err != nil {
		return err
	}

	i, err := net.InterfaceByName(dev)
	if err != nil {
		return fmt.Errorf("find %s: %w", dev, err)
	}

	a := p.Link().Addr().As16()
	a[7] += byte(n) // a /56 contains 256 networks with a /64 prefix
	b := p.bindings(port.HardwareAddr, netip.PrefixFrom(netip.AddrFrom16(a), 64))
	b.of[""] = n
	if err := kernel.AddAddress(dev, b.link); err != nil {
		return err
	}

	return p.serveLink(ctx, i, b, undo)
}

// serveLink starts DHCPv6 and router advertisements on a link.
func (p *provider) serveLink(ctx context.Context, i *net.Interface, b *bindings, undo *host.Undoing) error {
	ended, err := p.serveDHCPv6(i, b)
	if err != nil {
		return fmt.Errorf("serve DHCPv6 on %s: %w", i.Name, err)
	}

	undo.Add(ended)
	if ended, err = p.advertise(ctx, i, b.link); err != nil {
		return fmt.Errorf("advertise a router on %s: %w", i.Name, err)
	}

	undo.Add(ended)
	return nil
}

// ipv6Setting returns the path and value of an IPv6 sysctl of a device.
func ipv6Setting(dev, name string) (path, value string, err error) {
	path = "net/ipv6/conf/" + dev + "/" + name
	if value, err = kernel.ReadSysctl(path); errors.Is(err, kernel.ErrAbsent) {
		err = fmt.Errorf("%w: this kernel has no IPv6 on %s", host.ErrUnsupported, dev)
	}
	return path, value, err
}

func speaksIPv6(dev string) error {
	_, off, err := ipv6Setting(dev, "disable_ipv6")
	if err == nil && off != "0" {
		err = fmt.Errorf("%w: IPv6 is switched off on %s", host.ErrUnsupported, dev)
	}
	return err
}

// beRouter enables forwarding on the device, so that the kernel sets the router flag in neighbour
// advertisements. Without this flag, neighbours would remove their default route (RFC 4861 §7.2.5). The
// kernel forwards packets only if forwarding is also enabled for all devices (ip6_forward). However, enabling
// forwarding makes the kernel remove all default routes that it learned from router advertisements, except on
// devices with accept_ra=2 (net/ipv6/route.c, rt6_purge_dflt_routers). If a default route would be lost,
// beRouter returns an error.
func beRouter(dev string, undo *host.Undoing) error {
	if err := speaksIPv6(dev); err != nil {
		return err
	}

	forwarding, was, err := ipv6Setting(dev, "forwarding")
	if err != nil || was != "0" {
		return err
	}

	leads, err := kernel.AdvertisedDevices()
	if err != nil {
		return err
	}

	for _, d := range leads {
		path, accepts, err := ipv6Setting(d, "accept_ra")
		if err != nil {
			return err
		}

		if accepts == "1" { // if 0, a daemon has set the route, and the kernel keeps it
			return fmt.Errorf("%w: this machine would lose its own IPv6 default route, which was "+
				"advertised on %s; sysctl -w %s=2 keeps it", host.ErrUnsupported, d, path)
		}
	}

	if err := kernel.SysctlWritable(forwarding); err != nil {
		return fmt.Errorf("%w: %w", host.ErrUnsupported, err)
	}

	undo.Add(func() error { return kernel.WriteSysctl(forwarding, was) })
	return kernel.WriteSysctl(forwarding, "1")
}

// These are the intervals and the lifetime of router advertisements (RFC 4861 §6.2.1, §10).
const (
	routerLifetime  = 30 * time.Minute
	maxInterval     = 10 * time.Minute
	minInterval     = maxInterval / 3
	initialInterval = 16 * time.Second
	initials        = 3
	maxDelay        = 500 * time.Millisecond // maximum random delay before the reply to a solicitation
)

var (
	allNodes   = &net.IPAddr{IP: net.IPv6linklocalallnodes}
	allRouters = &net.IPAddr{IP: net.IPv6linklocalallrouters}
)

// advertise sends router advertisements on the link until ctx ends or ended is called. Finally, it sends an
// advertisement with a lifetime of 0.
func (p *provider) advertise(ctx context.Context, i *net.Interface, link netip.Prefix) (ended func() error,
	err error) {
	var lc net.ListenConfig
	zone := strconv.Itoa(i.Index) // an index instead of a name, because package net caches names for a minute
	raw, err := lc.ListenPacket(ctx, "ip6:58", linkLocal.Addr().WithZone(zone).String())
	if err != nil {
		return nil, err
	}

	c := ipv6.NewPacketConn(raw)
	var only ipv6.ICMPFilter
	only.SetAll(true)
	only.Accept(ipv6.ICMPTypeRouterSolicitation)
	err = errors.Join(c.SetICMPFilter(&only), c.SetControlMessage(ipv6.FlagHopLimit, true),
		c.SetHopLimit(hopLimit), c.SetMulticastHopLimit(hopLimit), c.SetMulticastInterface(i),
		c.SetMulticastLoopback(false), c.JoinGroup(i, allRouters))
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}

	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(ctx, func() { _ = c.SetReadDeadline(time.Unix(1, 0)) }) // interrupts the read
	done := make(chan struct{})
	go func() {
		defer close(done)
		text := advertisement(link, i.HardwareAddr, routerLifetime)
		if err := keepAdvertising(ctx, c, text); err != nil {
			p.fail(fmt.Errorf("advertise a router on %s: %w", i.Name, err))
		}

		// Ignore errors: the route then expires later.
		_, _ = c.WriteTo(advertisement(link, i.HardwareAddr, 0), nil, allNodes)
	}()
	return func() error { cancel(); stop(); <-done; return c.Close() }, nil
}

func keepAdvertising(ctx context.Context, c *ipv6.PacketConn, text []byte) error {
	buf := make([]byte, 2048)
	next := time.Now()
	for sent := 0; ; {
		if !time.Now().Before(next) {
			// Ignore errors: sending fails without a carrier, and is repeated later.
			_, _ = c.WriteTo(text, nil, allNodes)
			sent++
			next = time.Now().Add(minInterval + rand.N(maxInterval-minInterval))
			if sent < initials {
				next = time.Now().Add(initialInterval)
			}
		}

		err := c.SetReadDeadline(next)
		if ctx.Err() != nil || err != nil {
			return err
		}

		n, cm, from, err := c.ReadFrom(buf)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			continue
		case err != nil:
			return err
		case cm == nil || cm.HopLimit != hopLimit || !solicits(buf[:n]):
			continue
		}

		if host.Pause(ctx, rand.N(maxDelay)) != nil {
			return nil
		}

		if a, ok := from.(*net.IPAddr); !ok || a.IP.IsUnspecified() {
			from = allNodes
		}

		_, _ = c.WriteTo(text, nil, from) // error ignored: a subscriber that receives no reply asks again
	}
}

// hopLimit is the required hop limit of received messages. It proves that no router has forwarded the message
// (RFC 4861 §6.1).
const hopLimit = 255

// solicits reports whether m is a valid router solicitation (RFC 4861 §6.1.1).
func solicits(m []byte) bool {
	if len(m) < 8 || m[0] != byte(ipv6.ICMPTypeRouterSolicitation) || m[1] != 0 {
		return false
	}

	for m = m[8:]; len(m) >= 2; { // each option starts with a type and a length in units of 8 bytes
		n := 8 * int(m[1])
		if n == 0 || n > len(m) {
			return false
		}

		m = m[n:]
	}
	return len(m) == 0
}

// advertisement returns a router advertisement (RFC 4861 §4.2). It announces that subscribers can get
// addresses in the prefix link through DHCPv6 and through autoconfiguration. It also announces the provider
// as the DNS server, although the provider may not run one. A lifetime of 0 withdraws everything. mac is nil
// on a PPPoE session, because the session has no link-layer address. The kernel fills in the checksum (RFC
// 3542 §3.1).
func advertisement(link netip.Prefix, mac net.HardwareAddr, lifetime time.Duration) []byte {
	const (
		managed, other      = 0x80, 0x40
		onLink, autonomous  = 0x80, 0x40
		source, prefix, dns = 1, 3, 25 // option types; that of dns is defined in RFC 8106 §5.1
	)
	holds := uint32(leaseTime / time.Second)
	if lifetime == 0 {
		holds = 0
	}

	be := binary.BigEndian
	m := []byte{byte(ipv6.ICMPTypeRouterAdvertisement), 0, 0, 0, 64, managed | other}
	m = be.AppendUint16(m, uint16(lifetime/time.Second))
	m = be.AppendUint64(m, 0) // reachable time and retransmission timer: unspecified
	if mac != nil {
		m = append(append(m, source, 1), mac...)
	}

	m = append(m, prefix, 4, byte(link.Bits()), onLink|autonomous)
	m = be.AppendUint32(be.AppendUint32(be.AppendUint32(m, holds), holds), 0)
	m = append(m, link.Masked().Addr().AsSlice()...)
	m = be.AppendUint32(append(m, dns, 3, 0, 0), uint32(lifetime/time.Second))
	return append(m, link.Addr().AsSlice()...)
}
