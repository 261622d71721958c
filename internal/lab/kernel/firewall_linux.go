package kernel

import (
	"fmt"
	"slices"

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
	set, err := pick(func() ([]*nftables.Set, error) { return f.conn.GetSets(t) },
		func(s *nftables.Set) bool { return s.Name == sourcesSet })
	if err != nil {
		return Firewall{}, filterError(err)
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

// Empty chains that no packet sees; their presence says that the first rule is the stateful one, and that
// the last one logs.
const statefulMark, logMark = "stateful", "log"

const sourcesSet = "sources"

// SetFirewall replaces our rules, and counts them back.
func SetFirewall(want Firewall) error {
	return explain(setTable(firewallTable, want, equal, want.On, func(f filter) error {
		return f.inTables(firewallTable, func(t *nftables.Table) error {
			return f.addFirewall(t, true, want)
		})
	}, ReadFirewall), "set firewall of %d rules", want.Rules)
}

// ProbeFirewall makes rules like the wanted ones in a chain that no packet sees, and deletes them again.
func ProbeFirewall(like Firewall) error {
	like.Rules = 1
	return explain(probeFilter(func(f filter, table string) error {
		return f.addFirewall(f.newTable(table, nftables.TableFamilyIPv4), false, like)
	}), "probe firewall")
}

func (f filter) addFirewall(t *nftables.Table, hooked bool, want Firewall) error {
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
	return f.add()
}

// addList is "ip saddr ADDRESS drop", n times.
func (f filter) addList(c *nftables.Chain, n int) error {
	family, drop := c.Table.Family, &expr.Verdict{Kind: expr.VerdictDrop}
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

// addLookup is "ip saddr @sources drop", or "ip saddr vmap @sources" with drop as every verdict.
func (f filter) addLookup(c *nftables.Chain, verdicts bool, n int) error {
	t := c.Table
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

func loadSource(family nftables.TableFamily) expr.Any {
	offset, size := uint32(12), uint32(4)
	if family == nftables.TableFamilyIPv6 {
		offset, size = 8, 16
	}
	return &expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: size}
}

func strangeSource(family nftables.TableFamily, i int) []byte {
	return StrangeSource(family == nftables.TableFamilyIPv6, i).AsSlice()
}

const (
	flowtableTable = "flowtable"
	flowtableName  = "fast"
)

// ReadFlowtable reads our flow table. Both IP versions must have the same.
func ReadFlowtable() (Flowtable, error) {
	found, err := ofBothFamilies(filter.flowtable, sameFlowtable)
	return found, explain(err, "read flow table")
}

func sameFlowtable(a, b Flowtable) bool {
	return a.Hardware == b.Hardware && slices.Equal(a.Devices, b.Devices)
}

func (f filter) flowtable(family nftables.TableFamily) (Flowtable, error) {
	t, err := f.table(flowtableTable, family)
	if err != nil || t == nil {
		return Flowtable{}, err
	}
	list, err := dump(func() ([]*nftables.Flowtable, error) { return f.conn.ListFlowtables(t) })
	if err != nil {
		return Flowtable{}, filterError(err)
	}
	n, err := f.rules(t, rulesChain)
	if err != nil {
		return Flowtable{}, err
	}
	if len(list) != 1 || n != 1 {
		return Flowtable{}, fmt.Errorf("table %s has %d flow tables and %d rules, want one of each", t.Name,
			len(list), n)
	}
	return Flowtable{slices.Sorted(slices.Values(list[0].Devices)),
		list[0].Flags&nftables.FlowtableFlagsHWOffload != 0}, nil
}

// SetFlowtable replaces our flow table, and reads it back.
func SetFlowtable(want Flowtable) error {
	want.Devices = slices.Sorted(slices.Values(want.Devices))
	return explain(setTable(flowtableTable, want, sameFlowtable, len(want.Devices) > 0, func(f filter) error {
		return f.addFlowtable(flowtableTable, want, true)
	}, ReadFlowtable), "set flow table of %v", want.Devices)
}

// ProbeFlowtable makes a flow table like the wanted one that no connection is added to, and deletes it
// again. Devices are only asked where hardware is wanted.
func ProbeFlowtable(like Flowtable) error {
	if !like.Hardware {
		like.Devices = nil
	}
	return explain(probeFilter(func(f filter, table string) error {
		return f.addFlowtable(table, like, false)
	}), "probe flow table")
}

// addFlowtable makes table, flow table and rule for both IP versions in one transaction, or none of it.
func (f filter) addFlowtable(table string, want Flowtable, hooked bool) error {
	var flags nftables.FlowtableFlags
	if want.Hardware {
		flags = nftables.FlowtableFlagsHWOffload
	}
	for _, family := range families() {
		t := f.newTable(table, family)
		f.conn.AddFlowtable(&nftables.Flowtable{Table: t, Name: flowtableName, Devices: want.Devices,
			Flags: flags})
		f.newRule(f.filterChain(t, rulesChain, nftables.ChainHookForward, hooked),
			&expr.FlowOffload{Name: flowtableName})
	}
	return f.add()
}

const silenceTable = "silence"

// ReadSilence reads whether our rules drop what the machine has to say of packets that do not fit.
func ReadSilence() (bool, error) {
	on, err := ofBothFamilies(func(f filter, family nftables.TableFamily) (bool, error) {
		t, err := f.table(silenceTable, family)
		return t != nil, err
	}, equal)
	return on, explain(err, "read dropped ICMP errors")
}

// SetSilence drops the ICMP errors that the machine sends of packets that do not reach or do not fit, or no
// longer does.
func SetSilence(on bool) error {
	return explain(setTable(silenceTable, on, equal, on, func(f filter) error {
		return f.addSilence(silenceTable, true)
	}, ReadSilence), "drop ICMP errors")
}

// ProbeSilence makes such rules in a chain that no packet sees, and deletes them again.
func ProbeSilence() error {
	return explain(probeFilter(func(f filter, table string) error { return f.addSilence(table, false) }),
		"probe dropping of ICMP errors")
}

// addSilence is "icmp type destination-unreachable drop" (RFC 792) and "icmpv6 type packet-too-big drop"
// (RFC 4443) for what the machine itself sends.
func (f filter) addSilence(table string, hooked bool) error {
	for _, family := range families() {
		kind, number := byte(unix.IPPROTO_ICMP), byte(3)
		if family == nftables.TableFamilyIPv6 {
			kind, number = unix.IPPROTO_ICMPV6, 2
		}
		t := f.newTable(table, family)
		c := f.filterChain(t, "output", nftables.ChainHookOutput, hooked)
		f.newRule(c, &expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}, equals([]byte{kind}),
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Len: 1},
			equals([]byte{number}), &expr.Verdict{Kind: expr.VerdictDrop})
	}
	return f.add()
}
