package isp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv4/nclient4"
	"github.com/insomniacslk/dhcp/dhcpv4/server4"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
)

// leaseTime is the duration of a DHCP lease. It is so long that no lease is renewed during a trial.
const leaseTime = 12 * time.Hour

// maxLeases is the maximum number of subscribers that get an address.
const maxLeases = 64

// leases assigns each hardware address an address from the network.
type leases struct {
	own netip.Prefix
	of  map[string]netip.Addr
}

func (l *leases) take(mac string) (netip.Addr, bool) {
	if a, ok := l.of[mac]; ok {
		return a, true
	}

	if len(l.of) >= maxLeases {
		return netip.Addr{}, false
	}

	a, ok := nth(l.own, len(l.of)+1)
	if ok {
		l.of[mac] = a
	}

	return a, ok
}

// answer returns the reply to a subscriber's message, or nil if no reply is to be sent (RFC 2131 §4.3).
func (l *leases) answer(m *dhcpv4.DHCPv4) (*dhcpv4.DHCPv4, netip.Addr, error) {
	kind := dhcpv4.MessageTypeNone
	switch m.MessageType() {
	case dhcpv4.MessageTypeDiscover:
		kind = dhcpv4.MessageTypeOffer
	case dhcpv4.MessageTypeRequest:
		kind = dhcpv4.MessageTypeAck
		id := m.ServerIdentifier()
		if id != nil && !id.Equal(l.own.Addr().AsSlice()) {
			return nil, netip.Addr{}, nil // because the subscriber accepts another server's offer
		}
	default:
		return nil, netip.Addr{}, nil
	}

	a, ok := l.take(m.ClientHWAddr.String())
	if !ok {
		return nil, a, errors.New("all addresses are taken")
	}

	own := net.IP(l.own.Addr().AsSlice())
	wanted := m.RequestedIPAddress()
	if wanted == nil || wanted.IsUnspecified() {
		wanted = m.ClientIPAddr
	}

	other := wanted != nil && !wanted.IsUnspecified() && !wanted.Equal(a.AsSlice())
	if kind == dhcpv4.MessageTypeAck && other {
		r, err := dhcpv4.NewReplyFromRequest(m, dhcpv4.WithMessageType(dhcpv4.MessageTypeNak),
			dhcpv4.WithOption(dhcpv4.OptServerIdentifier(own)))
		return r, a, err
	}

	r, err := dhcpv4.NewReplyFromRequest(m, dhcpv4.WithMessageType(kind), dhcpv4.WithYourIP(a.AsSlice()),
		dhcpv4.WithServerIP(own), dhcpv4.WithOption(dhcpv4.OptServerIdentifier(own)),
		dhcpv4.WithNetmask(net.CIDRMask(l.own.Bits(), 32)), dhcpv4.WithRouter(own), dhcpv4.WithDNS(own),
		dhcpv4.WithLeaseTime(uint32(leaseTime/time.Second)))
	return r, a, err
}

func (p *provider) serveDHCP() (ended func() error, err error) {
	conn, err := server4.NewIPv4UDPConn(p.Device, &net.UDPAddr{IP: net.IPv4zero, Port: dhcpv4.ServerPort})
	if err != nil {
		return nil, fmt.Errorf("serve DHCP on %s: %w", p.Device, err)
	}

	l := &leases{p.own, map[string]netip.Addr{}}
	// Broadcast the reply, because a subscriber without an address cannot receive unicast (RFC 2131 §4.1).
	to := &net.UDPAddr{IP: net.IPv4bcast, Port: dhcpv4.ClientPort}
	return p.receive("DHCP", p.Device, conn, func(b []byte, _ netip.AddrPort) {
		m, err := dhcpv4.FromBytes(b)
		if err != nil || m.OpCode != dhcpv4.OpcodeBootRequest || len(m.ClientHWAddr) != 6 {
			return
		}

		r, a, err := l.answer(m)
		if err != nil {
			p.tell("%s gets no address: %v", m.ClientHWAddr, err)
		}

		if r == nil || err != nil {
			return
		}

		if _, err := conn.WriteTo(r.ToBytes(), to); err == nil && r.MessageType() == dhcpv4.MessageTypeAck {
			p.tell("%s has the address %s by DHCP", m.ClientHWAddr, a)
		}
	}), nil
}

// receive starts a goroutine that calls the function take for each datagram. The function that receive
// returns closes the socket and waits until the goroutine has ended.
func (p *provider) receive(protocol, dev string, conn *net.UDPConn,
	take func(b []byte, from netip.AddrPort)) (ended func() error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 4096)
		for {
			n, from, err := conn.ReadFromUDPAddrPort(buf)
			if errors.Is(err, net.ErrClosed) {
				return
			}

			if err != nil {
				p.fail(fmt.Errorf("serve %s on %s: %w", protocol, dev, err))
				return
			}

			take(buf[:n], from)
		}
	}()
	return func() error {
		err := conn.Close()
		<-done
		return err
	}
}

// joinDHCP replaces the device's IPv4 addresses with one obtained by DHCP. In the device's routes that have a
// gateway, it makes the provider the gateway.
func joinDHCP(ctx context.Context, a knob.Access, undo *host.Undoing, failed chan<- error) error {
	has, err := kernel.Addresses(a.Device)
	if err != nil {
		return err
	}

	routes, err := kernel.Neighbourly(a.Device)
	if err != nil {
		return err
	}

	for _, p := range has {
		if !p.Addr().Is4() {
			continue
		}

		undo.Add(func() error { return restoreRoutes(a.Device, routes) })
		undo.Add(func() error { return kernel.AddAddress(a.Device, p) })
		if err := kernel.DelAddress(a.Device, p); err != nil {
			return err
		}
	}

	lease, err := ask(ctx, a.Device, nil)
	if err != nil {
		return err
	}

	got, gateway, err := told(lease.ACK)
	if err != nil {
		return err
	}

	undo.Add(func() error { return kernel.DelAddress(a.Device, got) })
	if err := kernel.AddAddress(a.Device, got); err != nil {
		return err
	}

	for i := range routes {
		if err := kernel.AddRoute(routes[i].To, gateway, a.Device); err != nil {
			return err
		}
	}

	keep, end := context.WithCancel(ctx)
	over := make(chan struct{})
	go func() { // renew the lease after half of its time (RFC 2131 §4.4.5)
		defer close(over)
		for host.Pause(keep, lease.ACK.IPAddressLeaseTime(leaseTime)/2) == nil {
			var err error
			if lease, err = ask(keep, a.Device, lease); err != nil {
				failed <- fmt.Errorf("renew the lease of %s: %w", got, err)
				return
			}
		}
	}()
	undo.Add(func() error { end(); <-over; return nil })
	return nil
}

// ask obtains or renews a lease. It uses a packet socket, which receives all packets of the device. It closes
// the socket as soon as it has the lease, so that the socket does not slow down trials.
func ask(ctx context.Context, dev string, again *nclient4.Lease) (lease *nclient4.Lease, err error) {
	c, err := nclient4.New(dev, nclient4.WithTimeout(joinTime/10), nclient4.WithRetry(10))
	if err != nil {
		return nil, err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, joinTime)
	defer cancel()
	if again != nil {
		return c.Renew(ctx, again)
	}

	return c.Request(ctx)
}

// told returns the address and the router contained in a DHCP acknowledgement.
func told(m *dhcpv4.DHCPv4) (got netip.Prefix, gateway netip.Addr, err error) {
	a, ok := netip.AddrFromSlice(m.YourIPAddr.To4())
	ones, _ := m.SubnetMask().Size()
	if !ok || ones == 0 || len(m.Router()) == 0 {
		return got, gateway, errors.New("the provider names no address, network mask and router")
	}

	gateway, ok = netip.AddrFromSlice(m.Router()[0].To4())
	if !ok {
		return got, gateway, fmt.Errorf("the provider names a router %v", m.Router()[0])
	}

	return netip.PrefixFrom(a, ones), gateway, nil
}

func restoreRoutes(dev string, routes []kernel.Via) (err error) {
	for _, r := range routes {
		err = errors.Join(err, kernel.AddRoute(r.To, r.Gateway, dev))
	}
	return err
}
