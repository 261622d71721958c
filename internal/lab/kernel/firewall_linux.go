package kernel

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

const (
	firewallTable = "firewall"
	rulesChain    = "forward"
)

// ReadFirewall reads the rules of ours that are in place. Both IP versions must have the same; something
// else is an error.
func ReadFirewall() (Firewall, error) {
	found, err := ofBothFamilies(filter.firewall, equal)
	return found, explain(err, "read firewall")
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
	got := Firewall{On: true}
	for mark, is := range map[string]*bool{statefulMark: &got.Stateful, logMark: &got.Log} {
		if *is, err = f.hasChain(t, mark); err != nil {
			return Firewall{}, err
		}
		if *is {
			n--
		}
	}
	set, err := f.sources(t)
	if err != nil {
		return Firewall{}, err
	}
	if set == nil {
		got.Rules = n
		return got, nil
	}
	if n != 1 {
		return Firewall{}, fmt.Errorf("%d rules use the set %s, want one", n, set.Name)
	}
	if got.Form = FirewallSet; set.IsMap {
		got.Form = FirewallMap
	}
	elements, err := dump(func() ([]nftables.SetElement, error) { return f.conn.GetSetElements(set) })
	got.Rules = len(elements)
	return got, filterError(err)
}

// sources finds the set or map of our firewall; nil if it has none.
func (f filter) sources(t *nftables.Table) (*nftables.Set, error) {
	sets, err := dump(func() ([]*nftables.Set, error) { return f.conn.GetSets(t) })
	if err != nil {
		return nil, filterError(err)
	}
	for _, s := range sets {
		if s.Name == sourcesSet {
			return s, nil
		}
	}
	return nil, nil
}

// Empty chains that no packet sees; their presence says that the first rule is the stateful one, and that
// the last one logs.
const statefulMark, logMark = "stateful", "log"

const sourcesSet = "sources"

// SetFirewall replaces our rules, and counts them back.
func SetFirewall(want Firewall) error {
	f, err := openFilter()
	if err != nil {
		return explain(err, "set firewall")
	}
	err = replaced(want, equal, func() error { return f.remove(firewallTable) }, func() error {
		for _, family := range families() {
			if !want.On {
				break
			}
			if err := f.addFirewall(firewallTable, family, want); err != nil {
				return err
			}
		}
		return nil
	}, ReadFirewall)
	return explain(err, "set firewall of %d rules", want.Rules)
}

// ProbeFirewall makes rules like the wanted ones in a chain that no packet sees, and deletes them again.
func ProbeFirewall(like Firewall) error {
	const probe = "probe"
	f, err := openFilter()
	if err == nil {
		like.Rules = 1
		t := f.conn.AddTable(&nftables.Table{Name: TablePrefix + probe, Family: nftables.TableFamilyIPv4})
		c := f.conn.AddChain(&nftables.Chain{Name: rulesChain, Table: t})
		if err = f.addRules(t, c, like); err == nil {
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
	if err := f.addRules(t, c, want); err != nil {
		return err
	}
	return f.add()
}

func (f filter) addRules(t *nftables.Table, c *nftables.Chain, want Firewall) error {
	if want.Stateful {
		f.conn.AddChain(&nftables.Chain{Name: statefulMark, Table: t})
		f.conn.AddRule(&nftables.Rule{Table: t, Chain: c, Exprs: knownConnection()})
	}
	var err error
	if want.Form == FirewallList {
		err = f.addList(t, c, want.Rules)
	} else {
		err = f.addLookup(t, c, want.Form == FirewallMap, want.Rules)
	}
	if err != nil || !want.Log {
		return err
	}
	f.conn.AddChain(&nftables.Chain{Name: logMark, Table: t})
	f.conn.AddRule(&nftables.Rule{Table: t, Chain: c, Exprs: []expr.Any{
		&expr.Log{Key: 1 << unix.NFTA_LOG_PREFIX, Data: []byte("chokepoint ")},
	}})
	return nil
}

func (f filter) addList(t *nftables.Table, c *nftables.Chain, n int) error {
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

// addLookup is "ip saddr @sources drop", or "ip saddr vmap @sources" with drop as every verdict.
func (f filter) addLookup(t *nftables.Table, c *nftables.Chain, verdicts bool, n int) error {
	s := &nftables.Set{Table: t, Name: sourcesSet, KeyType: nftables.TypeIPAddr}
	if t.Family == nftables.TableFamilyIPv6 {
		s.KeyType = nftables.TypeIP6Addr
	}
	lookup := &expr.Lookup{SourceRegister: 1, SetName: s.Name, IsDestRegSet: verdicts}
	rule := []expr.Any{loadSource(t.Family), lookup}
	if verdicts {
		s.IsMap, s.DataType = true, nftables.TypeVerdict
	} else {
		rule = append(rule, &expr.Verdict{Kind: expr.VerdictDrop})
	}
	if err := f.conn.AddSet(s, nil); err != nil {
		return err
	}
	lookup.SetID = s.ID
	f.conn.AddRule(&nftables.Rule{Table: t, Chain: c, Exprs: rule})
	for from := 0; from < n; from += batch {
		var elements []nftables.SetElement
		for i := from; i < min(from+batch, n); i++ {
			e := nftables.SetElement{Key: strangeSource(t.Family, i)}
			if verdicts {
				e.VerdictData = &expr.Verdict{Kind: expr.VerdictDrop}
			}
			elements = append(elements, e)
		}
		if err := f.conn.SetAddElements(s, elements); err != nil {
			return err
		}
		if err := f.add(); err != nil {
			return err
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

// neverMatching is "ip saddr ADDRESS drop".
func neverMatching(family nftables.TableFamily, i int) []expr.Any {
	return []expr.Any{
		loadSource(family),
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: strangeSource(family, i)},
		&expr.Verdict{Kind: expr.VerdictDrop},
	}
}

func loadSource(family nftables.TableFamily) expr.Any {
	offset, size := uint32(12), uint32(4)
	if family == nftables.TableFamilyIPv6 {
		offset, size = 8, 16
	}
	return &expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: size}
}

// strangeSource is the i-th address that no packet bears: of 240.0.0.0/4 (RFC 1112 §4, reserved) or of
// 2001:db8::/32 (RFC 3849, documentation).
func strangeSource(family nftables.TableFamily, i int) []byte {
	if family != nftables.TableFamilyIPv6 {
		return binary.BigEndian.AppendUint32(nil, 0xf000_0001+uint32(i))
	}
	a := netip.MustParseAddr("2001:db8::1").As16()
	binary.BigEndian.PutUint32(a[8:], uint32(i))
	return a[:]
}
