package kernel

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
)

// batch is the maximum number of rules per transaction. A few hundred rules fail with ENOBUFS if the socket
// buffers have their default size, which an unprivileged process cannot increase.
const batch = 100

var families = []nftables.TableFamily{nftables.TableFamilyIPv4, nftables.TableFamilyIPv6}

// Table describes one of our nftables tables, which exists for IPv4 and for IPv6 with the same rules. The
// zero value of T means that there is no table.
type Table[T any] struct {
	name string
	read func(f filter, family nftables.TableFamily) (T, error)
	same func(a, b T) bool
	// add adds the tables. If hooked is false, no packet passes their chains.
	add func(f filter, table string, hooked bool, want T) error
}

// Read returns the current state. It returns an error if the table exists but was not created by Set.
func (t Table[T]) Read() (v4 T, err error) {
	var v6 T
	f := newFilter()
	if v4, err = t.read(f, nftables.TableFamilyIPv4); err == nil {
		v6, err = t.read(f, nftables.TableFamilyIPv6)
	}

	if err == nil && !t.same(v4, v6) {
		err = fmt.Errorf("IPv4 has %+v, IPv6 %+v, want the same", v4, v6)
	}

	return v4, explain(err, "read %s", t.name)
}

// Set replaces the current state and verifies the new one. After an error, the table does not exist.
func (t Table[T]) Set(want T) error {
	var nothing T
	f := newFilter()
	return explain(replaced(want, t.same, func() error { return f.remove(t.name) }, func() error {
		if t.same(want, nothing) {
			return nil
		}
		return t.add(f, t.name, true, want)
	}, t.Read), "set %s", t.name)
}

// Probe adds a table without hooks for the given state, and deletes it again. This tests the kernel.
func (t Table[T]) Probe(like T) error {
	return explain(probeFilter(func(f filter, table string) error {
		return t.add(f, table, false, like)
	}), "probe %s", t.name)
}

// filter accesses nftables. It opens a connection for each request.
type filter struct{ conn *nftables.Conn }

func newFilter() filter { return filter{&nftables.Conn{}} }

// probeFilter adds a table that no packet passes, and deletes it again. This tests the kernel.
func probeFilter(add func(f filter, table string) error) error {
	f := newFilter()
	return inOrder(func() error { return add(f, "probe") }, func() error { return f.remove("probe") })
}

func (f filter) flush() error { return filterError(f.conn.Flush()) }

// add commits additions. For an addition, ENOENT means that the kernel lacks a type of chain or expression.
func (f filter) add() error {
	err := f.flush()
	if errors.Is(err, syscall.ENOENT) {
		return lacks("nf_tables lacks a part: %w", err)
	}
	return err
}

// newTable adds one of our tables to the transaction.
func (f filter) newTable(name string, family nftables.TableFamily) *nftables.Table {
	return f.conn.AddTable(&nftables.Table{Name: TablePrefix + name, Family: family})
}

// newChain adds a chain without a hook, which no packet passes, to the transaction.
func (f filter) newChain(t *nftables.Table, name string) *nftables.Chain {
	return f.conn.AddChain(&nftables.Chain{Name: name, Table: t})
}

// filterChain adds a filter chain to the transaction. Packets pass the chain only if hooked is set.
func (f filter) filterChain(t *nftables.Table, name string, at *nftables.ChainHook,
	hooked bool) *nftables.Chain {
	if !hooked {
		return f.newChain(t, name)
	}
	return f.conn.AddChain(&nftables.Chain{
		Name:     name,
		Table:    t,
		Type:     nftables.ChainTypeFilter,
		Hooknum:  at,
		Priority: nftables.ChainPriorityFilter,
	})
}

func (f filter) newRule(c *nftables.Chain, e ...expr.Any) {
	f.conn.AddRule(&nftables.Rule{Table: c.Table, Chain: c, Exprs: e})
}

// equals returns an expression that compares register 1 with data.
func equals(data []byte) expr.Any { return &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: data} }

// table returns one of our tables, or nil if it does not exist.
func (f filter) table(name string, family nftables.TableFamily) (*nftables.Table, error) {
	t, err := pick(func() ([]*nftables.Table, error) { return f.conn.ListTablesOfFamily(family) },
		func(t *nftables.Table) bool { return t.Name == TablePrefix+name && t.Family == family })
	return t, filterError(err)
}

// remove deletes our tables with the given name for both IP versions.
func (f filter) remove(name string) error {
	for _, family := range families {
		t, err := f.table(name, family)
		if err != nil {
			return err
		}

		if t == nil {
			continue
		}

		f.conn.DelTable(t)
		if err := f.flush(); err != nil && !errors.Is(err, syscall.ENOENT) {
			return fmt.Errorf("delete packet filter table %s: %w", t.Name, err)
		}
	}
	return nil
}

// rules returns the number of rules in a chain, or -1 if the chain does not exist.
func (f filter) rules(t *nftables.Table, chain string) (int, error) {
	list, err := dump(func() ([]*nftables.Rule, error) {
		return f.conn.GetRules(t, &nftables.Chain{Name: chain, Table: t})
	})
	if errors.Is(err, syscall.ENOENT) {
		return -1, nil
	}
	return len(list), filterError(err)
}

// hasChain reports whether a table has a chain with the given name.
func (f filter) hasChain(t *nftables.Table, chain string) (bool, error) {
	c, err := pick(func() ([]*nftables.Chain, error) { return f.conn.ListChainsOfTableFamily(t.Family) },
		func(c *nftables.Chain) bool { return c.Table.Name == t.Name && c.Name == chain })
	return c != nil, filterError(err)
}

// filterError wraps ErrUnsupported if err means that the kernel lacks nftables.
func filterError(err error) error {
	if isOneOf(err, syscall.EPROTONOSUPPORT, syscall.EOPNOTSUPP, syscall.EINVAL) {
		return lacks("nf_tables says: %w", err)
	}
	return err
}
