package kernel

import (
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
	found, err := ofBothFamilies(filter.flowtable, slices.Equal)
	return found, explain(err, "read flow table")
}

func (f filter) flowtable(family nftables.TableFamily) ([]string, error) {
	t, err := f.table(flowtableTable, family)
	if err != nil || t == nil {
		return nil, err
	}
	list, err := dump(func() ([]*nftables.Flowtable, error) { return f.conn.ListFlowtables(t) })
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
	if err != nil {
		return explain(err, "set flow table")
	}
	err = replaced(slices.Sorted(slices.Values(devs)), slices.Equal,
		func() error { return f.remove(flowtableTable) }, func() error {
			if len(devs) == 0 {
				return nil
			}
			return f.addFlowtable(flowtableTable, devs)
		}, ReadFlowtable)
	return explain(err, "set flow table of %v", devs)
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
