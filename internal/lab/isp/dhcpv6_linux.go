package isp

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"

	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/insomniacslk/dhcp/dhcpv6/server6"
	"github.com/insomniacslk/dhcp/iana"
	"golang.org/x/net/ipv6"

	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
)

// maxDUID is the maximum length of a client's DUID in bytes (RFC 8415 §11.1).
const maxDUID = 130

// delegation returns the n-th prefix, counted from 1, to delegate from a block.
func delegation(block netip.Prefix, n int) (netip.Prefix, bool) {
	a := block.Masked().Addr().As16()
	high := binary.BigEndian.Uint64(a[:8])
	binary.BigEndian.PutUint64(a[:8], high+uint64(n)<<(64-knob.DelegatedBits))
	p := netip.PrefixFrom(netip.AddrFrom16(a), knob.DelegatedBits)
	return p, block.Contains(p.Addr())
}

// bindings assigns each subscriber a fixed address on the link and a fixed delegated prefix.
type bindings struct {
	block, link netip.Prefix
	own         dhcpv6.DUID
	of          map[string]int // subscriber numbers by DUID; "" stands for any DUID of a sole subscriber
}

// bindings returns the bindings for a link. It derives the provider's DUID from the hardware address of the
// port (RFC 8415 §11.4).
func (p *provider) bindings(port net.HardwareAddr, link netip.Prefix) *bindings {
	return &bindings{
		block: p.IPv6,
		link:  link,
		of:    map[string]int{},
		own:   &dhcpv6.DUIDLL{HWType: iana.HWTypeEthernet, LinkLayerAddr: port},
	}
}

func (b *bindings) take(duid string) (addr netip.Addr, network netip.Prefix, ok bool) {
	n, known := b.of[duid]
	if !known {
		n = len(b.of) + 1
	}

	addr, ok = nth(b.link, n)
	network, left := delegation(b.block, n)
	if ok = ok && left && n <= maxLeases; ok {
		b.of[duid] = n
	}

	return addr, network, ok
}

// grant holds the address and prefix that a reply assigns to a subscriber. A field is invalid if the reply
// does not assign it.
type grant struct {
	addr     netip.Addr
	network  netip.Prefix
	returned bool
}

// answer returns the reply to a subscriber's message, or nil if no reply is to be sent (RFC 8415 §16, §18.3).
func (b *bindings) answer(m *dhcpv6.Message) (r *dhcpv6.Message, g grant) {
	client := m.Options.ClientID()
	server := m.Options.ServerID()
	kind := dhcpv6.MessageTypeReply
	named := false
	switch m.MessageType {
	case dhcpv6.MessageTypeSolicit:
		if m.GetOneOption(dhcpv6.OptionRapidCommit) == nil {
			kind = dhcpv6.MessageTypeAdvertise
		}
	case dhcpv6.MessageTypeConfirm, dhcpv6.MessageTypeRebind:
	case dhcpv6.MessageTypeRequest, dhcpv6.MessageTypeRenew, dhcpv6.MessageTypeRelease,
		dhcpv6.MessageTypeDecline:
		named = true
	case dhcpv6.MessageTypeInformationRequest:
		named = server != nil
	default:
		return nil, g
	}

	if named != (server != nil) || named && !server.Equal(b.own) {
		return nil, g // because the message is for another server or invalid
	}

	r = &dhcpv6.Message{MessageType: kind, TransactionID: m.TransactionID}
	duid := ""
	if client != nil {
		duid = string(client.ToBytes())
		r.AddOption(dhcpv6.OptClientID(client))
	}

	inform := m.MessageType == dhcpv6.MessageTypeInformationRequest
	if len(duid) > maxDUID ||
		client == nil && !inform {
		return nil, g
	}

	_, alone := b.of[""]
	if alone {
		duid = ""
	}

	r.AddOption(dhcpv6.OptServerID(b.own))
	r.AddOption(dhcpv6.OptDNS(b.link.Addr().AsSlice()))
	switch m.MessageType {
	case dhcpv6.MessageTypeInformationRequest:
	case dhcpv6.MessageTypeConfirm:
		return b.confirm(m, r), g
	case dhcpv6.MessageTypeRelease, dhcpv6.MessageTypeDecline:
		r.AddOption(status(iana.StatusSuccess))
		_, known := b.of[duid]
		if known && m.Options.OneIAPD() != nil {
			_, g.network, _ = b.take(duid)
			g.returned = true
		}
	case dhcpv6.MessageTypeSolicit:
		if kind == dhcpv6.MessageTypeReply {
			dhcpv6.WithRapidCommit(r)
		} else {
			r.AddOption(dhcpv6.OptPreference(255)) // so that the client does not wait for other servers
		}
		fallthrough
	default:
		g = b.give(m, r, duid)
	}

	return r, g
}

func status(code iana.StatusCode) dhcpv6.Option { return &dhcpv6.OptStatusCode{StatusCode: code} }

// confirm returns the reply that states whether all addresses of the client belong to the link (§18.3.3).
func (b *bindings) confirm(m, r *dhcpv6.Message) *dhcpv6.Message {
	any := false
	here := iana.StatusSuccess
	for _, ia := range m.Options.IANA() {
		for _, has := range ia.Options.Addresses() {
			any = true
			if a, ok := netip.AddrFromSlice(has.IPv6Addr); !ok || !b.link.Contains(a) {
				here = iana.StatusNotOnLink
			}
		}
	}

	if !any {
		return nil
	}

	r.AddOption(status(here))
	return r
}

// give adds one address and one prefix to the reply if the client requests them. If the client wants to renew
// any other address or prefix, give sets the lifetimes of that address or prefix to 0.
func (b *bindings) give(m, r *dhcpv6.Message, duid string) (g grant) {
	const t1, t2 = leaseTime / 2, leaseTime * 4 / 5
	keeps := m.MessageType == dhcpv6.MessageTypeRenew || m.MessageType == dhcpv6.MessageTypeRebind
	addr, network, ok := b.take(duid)
	for i, asked := range m.Options.IANA() {
		ia := &dhcpv6.OptIANA{IaId: asked.IaId, T1: t1, T2: t2}
		r.AddOption(ia)
		if i > 0 || !ok {
			ia.Options.Add(status(iana.StatusNoAddrsAvail))
			continue
		}

		g.addr = addr
		ia.Options.Add(&dhcpv6.OptIAAddress{
			IPv6Addr:          addr.AsSlice(),
			PreferredLifetime: leaseTime,
			ValidLifetime:     leaseTime,
		})
		for _, has := range asked.Options.Addresses() {
			if keeps && !has.IPv6Addr.Equal(addr.AsSlice()) {
				ia.Options.Add(&dhcpv6.OptIAAddress{IPv6Addr: has.IPv6Addr})
			}
		}
	}

	for i, asked := range m.Options.IAPD() {
		ia := &dhcpv6.OptIAPD{IaId: asked.IaId, T1: t1, T2: t2}
		r.AddOption(ia)
		if i > 0 || !ok {
			ia.Options.Add(status(iana.StatusNoPrefixAvail))
			continue
		}

		g.network = network
		own := &net.IPNet{IP: network.Addr().AsSlice(), Mask: net.CIDRMask(network.Bits(), 128)}
		ia.Options.Add(&dhcpv6.OptIAPrefix{
			Prefix:            own,
			PreferredLifetime: leaseTime,
			ValidLifetime:     leaseTime,
		})
		for _, has := range asked.Options.Prefixes() {
			if keeps && has.Prefix != nil && has.Prefix.String() != own.String() {
				ia.Options.Add(&dhcpv6.OptIAPrefix{Prefix: has.Prefix})
			}
		}
	}

	if r.MessageType == dhcpv6.MessageTypeAdvertise {
		return grant{} // because only a reply assigns addresses
	}

	return g
}

// serveDHCPv6 serves DHCPv6 on i until ended is called. It routes each delegated prefix to the link-local
// address of its subscriber.
func (p *provider) serveDHCPv6(i *net.Interface, b *bindings) (ended func() error, err error) {
	conn, err := server6.NewIPv6UDPConn(i.Name, &net.UDPAddr{
		IP:   net.IPv6unspecified,
		Port: dhcpv6.DefaultServerPort,
	})
	if err != nil {
		return nil, err
	}

	err = ipv6.NewPacketConn(conn).JoinGroup(i, &net.UDPAddr{IP: dhcpv6.AllDHCPRelayAgentsAndServers})
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}

	routes := map[netip.Prefix]netip.Addr{}
	closed := p.receive("DHCPv6", i.Name, conn, func(text []byte, from netip.AddrPort) {
		m, err := dhcpv6.MessageFromBytes(text)
		if err != nil || !from.Addr().IsLinkLocalUnicast() {
			return
		}

		r, g := b.answer(m)
		if r == nil {
			return
		}

		via := from.Addr().WithZone("")
		if err := p.route(routes, g, via, i.Name); err != nil {
			p.tell("%s gets no network: %v", via, err)
			return
		}

		if _, err := conn.WriteToUDPAddrPort(r.ToBytes(), from); err == nil && !g.returned {
			p.tellGrant(via, g)
		}
	})
	return func() error {
		err := closed()
		for to, via := range routes {
			err = errors.Join(err, kernel.DelRoute(to, via, i.Name))
		}
		return err
	}, nil
}

// route adds a route for a subscriber's delegated prefix through the subscriber, and removes a previous one.
// If the subscriber has released the prefix, it only removes the route.
func (p *provider) route(routes map[netip.Prefix]netip.Addr, g grant, via netip.Addr, dev string) error {
	old, known := routes[g.network]
	if !g.network.IsValid() || known && old == via && !g.returned {
		return nil
	}

	if known {
		if err := kernel.DelRoute(g.network, old, dev); err != nil {
			return err
		}

		delete(routes, g.network)
	}

	if g.returned {
		return nil
	}

	routes[g.network] = via
	return kernel.AddRoute(g.network, via, dev)
}

func (p *provider) tellGrant(via netip.Addr, g grant) {
	switch {
	case g.addr.IsValid() && g.network.IsValid():
		p.tell("%s has the address %s and the network %s by DHCPv6", via, g.addr, g.network)
	case g.addr.IsValid():
		p.tell("%s has the address %s by DHCPv6", via, g.addr)
	case g.network.IsValid():
		p.tell("%s has the network %s by DHCPv6", via, g.network)
	}
}
