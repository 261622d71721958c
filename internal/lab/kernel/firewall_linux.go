package kernel

import (
	"fmt"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

const rulesChain = "forward"

// FirewallRules is the table that contains our firewall.
var FirewallRules = Table[Firewall]{"firewall", filter.firewall, equal[Firewall], filter.addFirewall}

func (f filter) firewall(family nftables.TableFamily) (got Firewall, err error) {
	t, err := f.table("firewall", family)
	if err != nil || t == nil {
		return got, err
	}

	n, err := f.rules(t, rulesChain)
	if err != nil || n < 0 {
		return got, err
	}

	got.On = true
	for mark, is := range map[string]*bool{statefulMark: &got.Stateful, logMark: &got.Log} {
		if *is, err = f.hasChain(t, mark); err != nil {
			return got, err
		}

		if *is {
			n--
		}
	}

	set, err := pick(func() ([]*nftables.Set, error) { return f.conn.GetSets(t) },
		func(s *nftables.Set) bool { return s.Name == sourcesSet })
	if err != nil {
		return got, filterError(err)
	}

	if set == nil {
		got.Rules = n
		return got, nil
	}

	if n != 1 {
		return got, fmt.Errorf("%d rules use the set %s, want one", n, set.Name)
	}

	if got.Form = FirewallSet; set.IsMap {
		got.Form = FirewallMap
	}

	elements, err := dump(func() ([]nftables.SetElement, error) { return f.conn.GetSetElements(set) })
	got.Rules = len(elements)
	return got, filterError(err)
}

// statefulMark and logMark are names of empty chains without a hook. If a chain statefulMark exists, the
// first rule in rulesChain is the stateful rule. If a chain logMark exists, the last rule logs.
const statefulMark, logMark = "stateful", "log"

const sourcesSet = "sources"

func (f filter) addFirewall(table string, hooked bool, want Firewall) error {
	if !hooked {
		want.Rules = 1
	}

	for _, family := range families {
		t := f.newTable(table, family)
		c := f.filterChain(t, rulesChain, nftables.ChainHookForward, hooked)
		if want.Stateful {
			f.newChain(t, statefulMark)
			f.newRule(c, knownConnection()...)
		}

		var err error
		if want.Form == FirewallList {
			err = f.addList(c, want.Rules)
		} else {
			err = f.addLookup(c, want.Form == FirewallMap, want.Rules)
		}

		if err != nil {
			return err
		}

		if want.Log {
			f.newChain(t, logMark)
			f.newRule(c, &expr.Log{Key: 1 << unix.NFTA_LOG_PREFIX, Data: []byte("chokepoint ")})
		}

		if err := f.add(); err != nil {
			return err
		}
	}
	return nil
}

// addList adds n rules of the form "ip saddr ADDRESS drop".
func (f filter) addList(c *nftables.Chain, n int) error {
	family := c.Table.Family
	drop := &expr.Verdict{Kind: expr.VerdictDrop}
	for i := range n {
		f.newRule(c, loadSource(family), equals(strangeSource(family, i)), drop)
		if (i+1)%batch == 0 {
			if err := f.add(); err != nil {
				return err
			}
		}
	}

	return nil
}

// addLookup adds the rule "ip saddr @sources drop". If verdicts is set, it instead adds the rule "ip saddr
// vmap @sources", with the verdict drop for all n elements.
func (f filter) addLookup(c *nftables.Chain, verdicts bool, n int) error {
	t := c.Table
	s := &nftables.Set{Table: t, Name: sourcesSet, KeyType: nftables.TypeIPAddr}
	if t.Family == nftables.TableFamilyIPv6 {
		s.KeyType = nftables.TypeIP6Addr
	}

	lookup := &expr.Lookup{SourceRegister: 1, SetName: s.Name, IsDestRegSet: verdicts}
	rule := []expr.Any{loadSource(t.Family), lookup}
	if verdicts {
		s.IsMap = true
		s.DataType = nftables.TypeVerdict
	} else {
		rule = append(rule, &expr.Verdict{Kind: expr.VerdictDrop})
	}

	if err := f.conn.AddSet(s, nil); err != nil {
		return err
	}

	lookup.SetID = s.ID
	f.newRule(c, rule...)
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

// knownConnection returns the rule "ct state established,related accept".
func knownConnection() []expr.Any {
	known := expr.CtStateBitESTABLISHED | expr.CtStateBitRELATED
	return []expr.Any{
		&expr.Ct{Key: expr.CtKeySTATE, Register: 1},
		&expr.Bitwise{
			SourceRegister: 1,
			DestRegister:   1,
			Len:            4,
			Mask:           binaryutil.NativeEndian.PutUint32(known),
			Xor:            make([]byte, 4),
		},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, 4)},
		&expr.Verdict{Kind: expr.VerdictAccept},
	}
}

func loadSource(family nftables.TableFamily) expr.Any {
	offset := uint32(12)
	size := uint32(4)
	if family == nftables.TableFamilyIPv6 {
		offset, size = 8, 16
	}

	return &expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: size}
}

func strangeSource(family nftables.TableFamily, i int) []byte {
	return StrangeSource(family == nftables.TableFamilyIPv6, i).AsSlice()
}

const flowtableName = "fast"

// Flowtables is the table that contains our flow table.
var Flowtables = Table[Flowtable]{"flowtable", filter.flowtable, sameFlowtable, filter.addFlowtable}

func sameFlowtable(a, b Flowtable) bool {
	return a.Hardware == b.Hardware && slices.Equal(a.Devices, b.Devices)
}

func (f filter) flowtable(family nftables.TableFamily) (got Flowtable, err error) {
	t, err := f.table("flowtable", family)
	if err != nil || t == nil {
		return got, err
	}

	list, err := dump(func() ([]*nftables.Flowtable, error) { return f.conn.ListFlowtables(t) })
	if err != nil {
		return got, filterError(err)
	}

	n, err := f.rules(t, rulesChain)
	if err != nil {
		return got, err
	}

	if len(list) != 1 || n != 1 {
		return got, fmt.Errorf("table %s has %d flow tables and %d rules, want one of each", t.Name,
			len(list), n)
	}

	return Flowtable{slices.Sorted(slices.Values(list[0].Devices)),
		list[0].Flags&nftables.FlowtableFlagsHWOffload != 0}, nil
}

// addFlowtable adds the table, the flow table and the rule for both IP versions in one transaction. For a
// probe, the flow table contains devices only if hardware offload is requested.
func (f filter) addFlowtable(table string, hooked bool, want Flowtable) error {
	if !hooked && !want.Hardware {
		want.Devices = nil
	}

	var flags nftables.FlowtableFlags
	if want.Hardware {
		flags = nftables.FlowtableFlagsHWOffload
	}

	for _, family := range families {
		t := f.newTable(table, family)
		f.conn.AddFlowtable(&nftables.Flowtable{
			Table:   t,
			Name:    flowtableName,
			Devices: want.Devices,
			Flags:   flags,
		})
		f.newRule(f.filterChain(t, rulesChain, nftables.ChainHookForward, hooked),
			&expr.FlowOffload{Name: flowtableName})
	}

	return f.add()
}

// Silence is the table that drops the ICMP errors that this machine sends about packets that are
// undeliverable or too big.
var Silence = Table[bool]{"silence", filter.silent, equal[bool], filter.addSilence}

func (f filter) silent(family nftables.TableFamily) (bool, error) {
	t, err := f.table("silence", family)
	return t != nil, err
}

// addSilence adds "icmp type destination-unreachable drop" (RFC 792) and "icmpv6 type packet-too-big drop"
// (RFC 4443). The rules apply to packets that the machine itself sends.
func (f filter) addSilence(table string, hooked, _ bool) error {
	for _, family := range families {
		kind := byte(unix.IPPROTO_ICMP)
		number := byte(3)
		if family == nftables.TableFamilyIPv6 {
			kind = unix.IPPROTO_ICMPV6
			number = 2
		}

		t := f.newTable(table, family)
		c := f.filterChain(t, "output", nftables.ChainHookOutput, hooked)
		f.newRule(c, &expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}, equals([]byte{kind}),
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Len: 1},
			equals([]byte{number}), &expr.Verdict{Kind: expr.VerdictDrop})
	}
	return f.add()
}
