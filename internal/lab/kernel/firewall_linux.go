package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
)

const (
	firewallTable = "firewall"
	rulesChain    = "forward"
)

// ReadFirewall reads the rules of ours that are in place. Both IP versions
// must have the same; something else is an error.
func ReadFirewall() (Firewall, error) {
	f, err := openFilter()
	if err != nil {
		return Firewall{}, explain(err, "read firewall")
	}
	var found []Firewall
	for _, family := range families() {
		one, err := f.firewall(family)
		if err != nil {
			return Firewall{}, explain(err, "read firewall")
		}
		found = append(found, one)
	}
	if found[0] != found[1] {
		return Firewall{}, fmt.Errorf("read firewall: IPv4 has %+v, IPv6 %+v, want the same", found[0], found[1])
	}
	return found[0], nil
}

func (f filter) firewall(family nftables.TableFamily) (Firewall, error) {
	t, err := f.table(firewallTable, family)
	if err != nil || t == nil {
		return Firewall{}, err
	}
	n, err := f.rules(t, rulesChain)
	if err != nil || n < 0 {
		return Firewall{}, err
	}
	stateful, err := f.hasChain(t, statefulMark)
	if err != nil {
		return Firewall{}, err
	}
	if stateful {
		n--
	}
	return Firewall{On: true, Rules: n, Stateful: stateful}, nil
}

// statefulMark is an empty chain that no packet sees; its presence says that
// the first rule is the stateful one.
const statefulMark = "stateful"

// SetFirewall replaces our rules, and counts them back.
func SetFirewall(want Firewall) error {
	f, err := openFilter()
	if err == nil {
		err = f.remove(firewallTable)
	}
	if err != nil || !want.On {
		return explain(err, "set firewall off")
	}
	for _, family := range families() {
		if err = f.addFirewall(firewallTable, family, want); err != nil {
			break
		}
	}
	if err == nil {
		var got Firewall
		if got, err = ReadFirewall(); err == nil && got != want {
			err = fmt.Errorf("kernel has %+v", got)
		}
	}
	if err != nil {
		return explain(errors.Join(err, f.remove(firewallTable)), "set firewall of %d rules", want.Rules)
	}
	return nil
}

// ProbeFirewall makes the rules in a chain that no packet sees, and deletes
// them again.
func ProbeFirewall(stateful bool) error {
	const probe = "probe"
	f, err := openFilter()
	if err == nil {
		t := f.conn.AddTable(&nftables.Table{Name: TablePrefix + probe, Family: nftables.TableFamilyIPv4})
		c := f.conn.AddChain(&nftables.Chain{Name: rulesChain, Table: t})
		if err = f.addRules(t, c, 1, stateful); err == nil {
			err = f.add()
		}
	}
	if err == nil {
		err = f.remove(probe)
	}
	return explain(err, "probe firewall")
}

func (f filter) addFirewall(table string, family nftables.TableFamily, want Firewall) error {
	t := f.conn.AddTable(&nftables.Table{Name: TablePrefix + table, Family: family})
	c := f.conn.AddChain(&nftables.Chain{
		Name: rulesChain, Table: t, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookForward, Priority: nftables.ChainPriorityFilter,
	})
	if err := f.addRules(t, c, want.Rules, want.Stateful); err != nil {
		return err
	}
	return f.add()
}

func (f filter) addRules(t *nftables.Table, c *nftables.Chain, n int, stateful bool) error {
	if stateful {
		f.conn.AddChain(&nftables.Chain{Name: statefulMark, Table: t})
		f.conn.AddRule(&nftables.Rule{Table: t, Chain: c, Exprs: knownConnection()})
	}
	for i := range n {
		f.conn.AddRule(&nftables.Rule{Table: t, Chain: c, Exprs: neverMatching(t.Family, i)})
		if (i+1)%batch == 0 {
			if err := f.add(); err != nil {
				return err
			}
		}
	}
	return nil
}

// knownConnection is "ct state established,related accept".
func knownConnection() []expr.Any {
	known := expr.CtStateBitESTABLISHED | expr.CtStateBitRELATED
	return []expr.Any{
		&expr.Ct{Key: expr.CtKeySTATE, Register: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4,
			Mask: binaryutil.NativeEndian.PutUint32(known), Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, 4)},
		&expr.Verdict{Kind: expr.VerdictAccept},
	}
}

// neverMatching is "ip saddr ADDRESS drop" with an address that no packet
// bears: of 240.0.0.0/4 (RFC 1112 §4, reserved) or of 2001:db8::/32
// (RFC 3849, documentation).
func neverMatching(family nftables.TableFamily, i int) []expr.Any {
	source := binary.BigEndian.AppendUint32(nil, 0xf000_0001+uint32(i))
	offset := uint32(12)
	if family == nftables.TableFamilyIPv6 {
		a := netip.MustParseAddr("2001:db8::1").As16()
		binary.BigEndian.PutUint32(a[8:], uint32(i))
		source, offset = a[:], 8
	}
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: uint32(len(source))},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: source},
		&expr.Verdict{Kind: expr.VerdictDrop},
	}
}
