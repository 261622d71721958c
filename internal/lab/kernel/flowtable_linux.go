package kernel

import (
	"errors"
	"fmt"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
)

const (
	flowtableTable = "flowtable"
	flowtableName  = "fast"
)

// ReadFlowtable reads the devices whose known connections skip the kernel's forwarding; none without our
// flow table. Both IP versions must have the same.
func ReadFlowtable() ([]string, error) {
	f, err := openFilter()
	if err != nil {
		return nil, explain(err, "read flow table")
	}
	var found [][]string
	for _, family := range families() {
		devs, err := f.flowtable(family)
		if err != nil {
			return nil, explain(err, "read flow table")
		}
		found = append(found, devs)
	}
	if !slices.Equal(found[0], found[1]) {
		return nil, fmt.Errorf("read flow table: IPv4 has %v, IPv6 %v, want the same", found[0], found[1])
	}
	return found[0], nil
}

func (f filter) flowtable(family nftables.TableFamily) ([]string, error) {
	t, err := f.table(flowtableTable, family)
	if err != nil || t == nil {
		return nil, err
	}
	list, err := repeatInterrupted(func() ([]*nftables.Flowtable, error) { return f.conn.ListFlowtables(t) })
	if err != nil {
		return nil, filterError(err)
	}
	n, err := f.rules(t, rulesChain)
	if err != nil {
		return nil, err
	}
	if len(list) != 1 || n != 1 {
		return nil, fmt.Errorf("table %s has %d flow tables and %d rules, want one of each", t.Name,
			len(list), n)
	}
	return slices.Sorted(slices.Values(list[0].Devices)), nil
}

// SetFlowtable replaces our flow table, and reads it back: what TCP and UDP connections these devices
// forward goes from the one's ingress to the other's egress once it is known, past the packet filter's
// later rules. No devices: none.
func SetFlowtable(devs []string) error {
	f, err := openFilter()
	if err == nil {
		err = f.remove(flowtableTable)
	}
	if err != nil || len(devs) == 0 {
		return explain(err, "set flow table off")
	}
	err = f.addFlowtable(flowtableTable, devs)
	if err == nil {
		var got []string
		want := slices.Sorted(slices.Values(devs))
		if got, err = ReadFlowtable(); err == nil && !slices.Equal(got, want) {
			err = fmt.Errorf("kernel has %v", got)
		}
	}
	if err != nil {
		return explain(errors.Join(err, f.remove(flowtableTable)), "set flow table of %v", devs)
	}
	return nil
}

// ProbeFlowtable makes a flow table of no device, and deletes it again.
func ProbeFlowtable() error {
	const probe = "probe"
	f, err := openFilter()
	if err == nil {
		err = f.addFlowtable(probe, nil)
	}
	if err == nil {
		err = f.remove(probe)
	}
	return explain(err, "probe flow table")
}

// addFlowtable makes table, flow table and rule for both IP versions in one transaction, or none of it.
func (f filter) addFlowtable(table string, devs []string) error {
	for _, family := range families() {
		t := f.conn.AddTable(&nftables.Table{Name: TablePrefix + table, Family: family})
		f.conn.AddFlowtable(&nftables.Flowtable{Table: t, Name: flowtableName, Devices: devs})
		c := &nftables.Chain{Name: rulesChain, Table: t}
		if len(devs) > 0 {
			c.Type, c.Hooknum, c.Priority = nftables.ChainTypeFilter, nftables.ChainHookForward,
				nftables.ChainPriorityFilter
		}
		f.conn.AddChain(c)
		f.conn.AddRule(&nftables.Rule{Table: t, Chain: c,
			Exprs: []expr.Any{&expr.FlowOffload{Name: flowtableName}}})
	}
	return f.add()
}
