package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const natTable = "nat"

// ReadNAT returns the mode of our address translation.
func ReadNAT() (NATMode, error) {
	f := newFilter()
	t, err := f.table(natTable, nftables.TableFamilyIPv4)
	if err != nil || t == nil {
		return NATOff, explain(err, "read nat")
	}

	mode := NATMasquerade
	forward, err := f.hasChain(t, "prerouting")
	if forward {
		mode = NATForward
	}

	return mode, explain(err, "read nat")
}

// SetNAT replaces our address translation. It deletes the conntrack entries of connections to the forwarded
// ports. The translation of other connections remains.
func SetNAT(n NAT) error {
	f := newFilter()
	return explain(inOrder(func() error { return f.remove(natTable) },
		func() error { return f.addNAT(natTable, n) }, forgetConnections), "set nat %s", n.Mode)
}

// ProbeNAT adds an address translation for a nonexistent port and deletes it again. This tests the kernel
// without affecting packets.
func ProbeNAT(mode NATMode) error {
	return explain(probeFilter(func(f filter, table string) error {
		return f.addNAT(table, NAT{mode, "chokepoint-none", []netip.Addr{netip.IPv4Unspecified()}, nil})
	}), "probe nat %s", mode)
}

func (f filter) addNAT(table string, n NAT) error {
	switch {
	case n.Mode == NATOff:
		return nil
	case n.Mode != NATMasquerade && n.Mode != NATForward:
		return fmt.Errorf("unknown kind %q", n.Mode)
	case n.WAN == "":
		return errors.New("no WAN port given")
	case n.Mode == NATForward && len(n.Inside) == 0:
		return errors.New("no inside address given")
	}

	// Only IPv4 is translated.
	t := f.newTable(table, nftables.TableFamilyIPv4)
	if n.Mode == NATMasquerade {
		f.masquerade(t, n.WAN)
	} else {
		f.forward(t, n)
	}

	if err := f.add(); err != nil {
		return errors.Join(err, f.remove(table))
	}

	return nil
}

func (f filter) masquerade(t *nftables.Table, wan string) {
	c := f.conn.AddChain(&nftables.Chain{
		Name:     "postrouting",
		Table:    t,
		Type:     nftables.ChainTypeNAT,
		Hooknum:  nftables.ChainHookPostrouting,
		Priority: nftables.ChainPriorityNATSource,
	})
	f.newRule(c, &expr.Meta{Key: expr.MetaKeyOIFNAME, Register: 1}, equals(deviceName(wan)), &expr.Masq{})
}

func (f filter) forward(t *nftables.Table, n NAT) {
	c := f.conn.AddChain(&nftables.Chain{
		Name:     "prerouting",
		Table:    t,
		Type:     nftables.ChainTypeNAT,
		Hooknum:  nftables.ChainHookPrerouting,
		Priority: nftables.ChainPriorityNATDest,
	})
	inside := slices.IndexFunc(n.Inside, netip.Addr.Is4)
	if inside < 0 {
		return
	}

	e := []expr.Any{&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1}, equals(deviceName(n.WAN))}
	i := slices.IndexFunc(n.Outside, netip.Addr.Is4)
	if i >= 0 {
		e = append(e, &expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: 16, Len: 4},
			equals(n.Outside[i].AsSlice()))
	}

	for _, protocol := range []byte{unix.IPPROTO_TCP, unix.IPPROTO_UDP} {
		f.newRule(c, append(slices.Clip(e),
			&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}, equals([]byte{protocol}),
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
			&expr.Range{
				Op:       expr.CmpOpEq,
				Register: 1,
				FromData: binary.BigEndian.AppendUint16(nil, ForwardedFirst),
				ToData:   binary.BigEndian.AppendUint16(nil, ForwardedLast),
			},
			&expr.Immediate{Register: 1, Data: n.Inside[inside].AsSlice()},
			&expr.NAT{Type: expr.NATTypeDestNAT, Family: unix.NFPROTO_IPV4, RegAddrMin: 1})...)
	}
}

// deviceName returns a name in the form with which nftables compares it: padded with zeros.
func deviceName(dev string) []byte {
	b := make([]byte, unix.IFNAMSIZ)
	copy(b, dev)
	return b
}

// forwarded matches connections to the ports of NATForward.
type forwarded struct{}

func (forwarded) MatchConntrackFlow(c *netlink.ConntrackFlow) bool {
	return c.Forward.DstPort >= ForwardedFirst && c.Forward.DstPort <= ForwardedLast
}

// forgetConnections deletes the conntrack entries of connections to the forwarded ports, so that their
// translation does not outlive its rule. If the kernel does not support this, the entries remain until they
// expire.
func forgetConnections() error {
	reportDetails()
	for _, family := range []netlink.InetFamily{unix.AF_INET, unix.AF_INET6} {
		_, err := netlink.ConntrackDeleteFilters(netlink.ConntrackTable, family, forwarded{})
		err = ignore(err, unix.EPROTONOSUPPORT, unix.EINVAL, unix.EOPNOTSUPP, netlink.ErrDumpInterrupted)
		if err != nil {
			return fmt.Errorf("forget tracked connections: %w", err)
		}
	}
	return nil
}
