package driver

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

func sample(t testing.TB, name string) string {
	t.Helper()
	return get(t, filepath.Join("testdata/inventory", name))
}

// said are the rules of a packet filter, each with what it does and who reaches it.
func said(f *record.PacketFilter) (out []string) {
	for _, r := range f.Rules {
		text := fmt.Sprintf("%d %s %s %s: %s [%s] %s", r.Handle, r.Family, r.Table, r.Chain, r.Text,
			strings.Join(r.Kinds, " "), strings.Join(r.Hooks, " "))
		if r.NewOnly {
			text += " new"
		}

		if r.Own {
			text += " ours"
		}

		if r.Packets != nil {
			text += fmt.Sprint(" counted ", *r.Packets, " ", *r.Bytes)
		}

		out = append(out, text)
	}
	return out
}

// What nft -a list ruleset prints on Debian, by hand and by iptables, and on OpenWrt.
func TestParseRuleset(t *testing.T) {
	for _, name := range []string{"debian", "openwrt"} {
		r, err := parseRuleset(sample(t, name+".nft"))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}

		f := r.PacketFilter()
		want := sample(t, name+".want")
		same(t, want, strings.Join(said(f), "\n")+"\n", "%s", name)
		text := fmt.Sprintf("%+v", f)
		for _, secret := range []string{"192.0.2", "anna", "!fw4"} {
			if strings.Contains(text, secret) {
				t.Errorf("%s: %s is in %s", name, secret, text)
			}
		}
	}

	r, err := parseRuleset("Error: Could not process rule: Operation not permitted\n")
	if err == nil {
		t.Errorf("a refusal gives %+v", r)
	}
}

func TestParseRulesetChains(t *testing.T) {
	r, err := parseRuleset(sample(t, "debian.nft"))
	must(t, err)
	f := r.PacketFilter()
	want := []record.FilterChain{
		{Family: "inet", Table: "edge", Name: "forward", Hook: "forward", Priority: 1, Policy: "drop", Rules: 17},
		{Family: "ip", Table: "filter", Name: "FORWARD", Hook: "forward", Policy: "accept", Rules: 8},
		{
			Family: "ip",
			Table:  "chokepoint_firewall",
			Name:   "forward",
			Hook:   "forward",
			Policy: "accept",
			Rules:  1,
			Own:    true,
		},
		{
			Family:   "inet",
			Table:    "edge",
			Name:     "pre",
			Hook:     "prerouting",
			Priority: -300,
			Policy:   "accept",
			Rules:    1,
		},
		{
			Family: "netdev",
			Table:  "early",
			Name:   "in",
			Hook:   "ingress",
			Policy: "accept",
			Device: "eth0",
			Rules:  1,
		}}
	same(t, want, f.Chains, "chains")
	wantTables := []record.FoundFlowtable{{
		Family:  "inet",
		Table:   "edge",
		Name:    "ft",
		Devices: []string{"eth0", "eth1"},
		Flags:   []string{"offload", "counter"},
	}}
	same(t, wantTables, f.Flowtables, "flow tables")
}

const inventoryText = `part devices
link eth0|physical|||1500|1000|2
link br0|bridge|||1500||3
link lan1|dsa|br0|eth0|1500|-1|4
part queues
device eth0
qdisc tbf 8001: root refcnt 3 rate 150Mbit burst 5Kb lat 54us limit 6Kb
filters
part filter
missing it has no nft
part iptables
table ip filter 12
part taps
sk       RefCnt Type Proto  Iface R Rmem   User   Inode
0000000000000000 3      3    0003   2     1 0      0      21
part nfqueues
cat: can't open '/proc/net/netfilter/nfnetlink_queue': No such file or directory
missing /proc/net/netfilter/nfnetlink_queue cannot be read
part conntrack
65536
12
part bridge_filter
0
part xfrm
state 0
window 64
state 32
`

func TestParseInventory(t *testing.T) {
	v := parseInventory(inventoryText)
	if d := v.Device("eth0"); d == nil || d.RateBps() != 150e6 || d.SpeedMbps != 1000 ||
		d.Kind != "physical" {
		t.Errorf("eth0: %+v", d)
	}

	if d := v.Device("lan1"); d == nil || d.Missing == "" || d.Master != "br0" || d.Lower != "eth0" ||
		d.SpeedMbps != 0 {
		t.Errorf("lan1: %+v", d)
	}

	v.Devices = nil
	want := &record.Inventory{
		Filter:       &record.PacketFilter{LegacyEntries: map[string]int{"filter": 12}},
		Taps:         []record.Tap{{Device: "eth0", Type: "raw", Protocol: "0003", Sockets: 1}},
		Conntrack:    &record.Conntrack{Max: 65536, Count: 12},
		XFRM:         &record.XFRMStates{States: 2, Replayed: 2, MinWindow: 32},
		BridgeFilter: new(false),
		Missing: map[string]string{"filter": "it has no nft",
			"nfqueues": "/proc/net/netfilter/nfnetlink_queue cannot be read"},
	}
	same(t, want, v, "inventory")
	if v := parseInventory(""); len(v.Missing) < 8 {
		t.Errorf("of an empty answer only this is missing: %v", v.Missing)
	}
}

func FuzzParseInventory(f *testing.F) {
	f.Add(inventoryText)
	for _, name := range []string{"debian.nft", "openwrt.nft"} {
		f.Add("part filter\n" + sample(f, name))
	}

	f.Fuzz(func(t *testing.T, text string) {
		v := parseInventory(text)
		if v.Filter == nil {
			return
		}

		for _, r := range v.Filter.Rules {
			if len(r.Kinds) == 0 || len(r.Hooks) == 0 || len(r.Text) > 200 {
				t.Errorf("rule %+v", r)
			}
		}

		if len(v.Filter.Rules) > record.MaxFilterRules {
			t.Errorf("%d rules", len(v.Filter.Rules))
		}
	})
}
