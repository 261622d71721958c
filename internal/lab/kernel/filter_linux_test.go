package kernel

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
)

func TestNATIsReadBackAndRemoved(t *testing.T) {
	inNamespace(t, func(t *testing.T) {
		pair(t)
		in := []netip.Addr{addr("198.18.0.2"), addr("2001:2::2")}
		out := []netip.Addr{addr("198.18.1.1"), addr("2001:2:0:1::1")}
		for _, mode := range []NATMode{NATOff, NATMasquerade, NATForward, NATMasquerade, NATOff} {
			must(t, SetNAT(NAT{mode, "a0", in, out}))
			reads(t, "nat", mode)(ReadNAT())
		}

		reads(t, "tables at the end", []string(nil))(filterTables())
		if err := SetNAT(NAT{Mode: NATForward, WAN: "a0"}); err == nil {
			t.Error("a forward to nowhere is accepted, want an error")
		}
	})
}

func TestFirewallIsCountedBackAndRemoved(t *testing.T) {
	inNamespace(t, func(t *testing.T) {
		for _, want := range []Firewall{
			{On: true}, {On: true, Rules: 1}, {On: true, Rules: 1000}, {On: true, Stateful: true},
			{On: true, Rules: 101, Stateful: true}, {On: true, Form: FirewallSet}, {
				On:    true,
				Rules: 250,
				Form:  FirewallSet,
			},
			{On: true, Rules: 250, Form: FirewallMap, Stateful: true}, {On: true, Rules: 7, Log: true},
			{On: true, Rules: 1, Form: FirewallMap, Stateful: true, Log: true}, {},
		} {
			start := time.Now()
			must(t, FirewallRules.Set(want))
			t.Logf("%+v in %v", want, time.Since(start))
			reads(t, "firewall", want)(FirewallRules.Read())
		}

		must(t, FirewallRules.Probe(Firewall{On: true, Form: FirewallMap, Stateful: true, Log: true}))
		must(t, ProbeNAT(NATMasquerade))
		must(t, ProbeNAT(NATForward))
		reads(t, "tables at the end", []string(nil))(filterTables())
	})
}

// filterTables lists our own tables, as "ip chokepoint_nat": what is left when something was not undone.
func filterTables() ([]string, error) {
	f := newFilter()
	var names []string
	for i, family := range families {
		tables, err := dump(func() ([]*nftables.Table, error) { return f.conn.ListTablesOfFamily(family) })
		if err != nil {
			return nil, err
		}

		for _, t := range tables {
			if strings.HasPrefix(t.Name, TablePrefix) && t.Family == family {
				names = append(names, []string{"ip ", "ip6 "}[i]+t.Name)
			}
		}
	}

	return names, nil
}
