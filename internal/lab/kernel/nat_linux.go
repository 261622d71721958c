package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const natTable = "nat"

// ReadNAT reads which translation of ours is in place.
func ReadNAT() (NATMode, error) {
	f, err := openFilter()
	if err != nil {
		return "", explain(err, "read nat")
	}
	for _, family := range families() {
		t, err := f.table(natTable, family)
		if err != nil {
			return "", explain(err, "read nat")
		}
		if t == nil {
			continue
		}
		forward, err := f.hasChain(t, "prerouting")
		if err != nil {
			return "", explain(err, "read nat")
		}
		if forward {
			return NATForward, nil
		}
		return NATMasquerade, nil
	}
	return NATOff, nil
}

// SetNAT replaces our translation. Connections that the former one knew are forgotten where they use the
// forwarded ports; others go on as they began.
func SetNAT(n NAT) error {
	f, err := openFilter()
	if err == nil {
		err = f.remove(natTable)
	}
	if err == nil {
		err = f.addNAT(natTable, n)
	}
	if err == nil {
		err = forgetConnections()
	}
	return explain(err, "set nat %s", n.Mode)
}

// ProbeNAT makes a translation for a port that does not exist, and deletes it again: it says what a kernel
// has without touching a packet.
func ProbeNAT(mode NATMode) error {
	const probe = "probe"
	f, err := openFilter()
	if err == nil {
		err = f.addNAT(probe, NAT{mode, "chokepoint-none", []netip.Addr{netip.IPv4Unspecified()}, nil})
	}
	if err == nil {
		err = f.remove(probe)
	}
	return explain(err, "probe nat %s", mode)
}

func (f filter) addNAT(table string, n NAT) error {
	switch n.Mode {
	case NATOff:
		return nil
	case NATMasquerade, NATForward:
	default:
		return fmt.Errorf("unknown kind %q", n.Mode)
	}
	if n.WAN == "" {
		return errors.New("no WAN port given")
	}
	if n.Mode == NATForward && len(n.Inside) == 0 {
		return errors.New("no inside address given")
	}
	// IPv6 is not translated: NAT66 is off.
	t := f.conn.AddTable(&nftables.Table{Name: TablePrefix + table, Family: nftables.TableFamilyIPv4})
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
		Name: "postrouting", Table: t, Type: nftables.ChainTypeNAT,
		Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource,
	})
	f.conn.AddRule(&nftables.Rule{Table: t, Chain: c, Exprs: []expr.Any{
		&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: deviceName(wan)},
		&expr.Masq{},
	}})
}

func (f filter) forward(t *nftables.Table, n NAT) {
	c := f.conn.AddChain(&nftables.Chain{
		Name: "prerouting", Table: t, Type: nftables.ChainTypeNAT,
		Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityNATDest,
	})
	ofFamily := func(list []netip.Addr) netip.Addr {
		for _, a := range list {
			if a.Is4() == (t.Family == nftables.TableFamilyIPv4) {
				return a
			}
		}
		return netip.Addr{}
	}
	inside, outside := ofFamily(n.Inside), ofFamily(n.Outside)
	if !inside.IsValid() {
		return
	}
	for _, protocol := range []byte{unix.IPPROTO_TCP, unix.IPPROTO_UDP} {
		f.conn.AddRule(&nftables.Rule{Table: t, Chain: c, Exprs: forwardRule(n.WAN, inside, outside,
			protocol)})
	}
}

func forwardRule(wan string, inside, outside netip.Addr, protocol byte) []expr.Any {
	family, offset, size := uint32(unix.NFPROTO_IPV4), uint32(16), uint32(4)
	if inside.Is6() {
		family, offset, size = unix.NFPROTO_IPV6, 24, 16
	}
	e := []expr.Any{
		&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: deviceName(wan)},
	}
	if outside.IsValid() {
		e = append(e,
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: size},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: outside.AsSlice()})
	}
	return append(e,
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{protocol}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
		&expr.Range{Op: expr.CmpOpEq, Register: 1,
			FromData: binary.BigEndian.AppendUint16(nil, ForwardedFirst),
			ToData:   binary.BigEndian.AppendUint16(nil, ForwardedLast)},
		&expr.Immediate{Register: 1, Data: inside.AsSlice()},
		&expr.NAT{Type: expr.NATTypeDestNAT, Family: family, RegAddrMin: 1})
}

// deviceName is a name as comparisons want it: padded with zeros.
func deviceName(dev string) []byte {
	b := make([]byte, unix.IFNAMSIZ)
	copy(b, dev)
	return b
}

// forwarded picks the connections to the ports of a forward.
type forwarded struct{}

func (forwarded) MatchConntrackFlow(c *netlink.ConntrackFlow) bool {
	return c.Forward.DstPort >= ForwardedFirst && c.Forward.DstPort <= ForwardedLast
}

// forgetConnections deletes what connection tracking knows of our ports, so that no translation outlives
// its rule. A kernel without this interface forgets by itself in time.
func forgetConnections() error {
	reportDetails()
	for _, family := range []netlink.InetFamily{unix.AF_INET, unix.AF_INET6} {
		_, err := netlink.ConntrackDeleteFilters(netlink.ConntrackTable, family, forwarded{})
		if err != nil && !errors.Is(err, unix.EPROTONOSUPPORT) && !errors.Is(err, unix.EINVAL) &&
			!errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, netlink.ErrDumpInterrupted) {
			return fmt.Errorf("forget tracked connections: %w", err)
		}
	}
	return nil
}
