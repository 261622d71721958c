package probe

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// nested is a netlink attribute of texts, bytes and attributes.
func nested(kind uint16, parts ...any) (b []byte) {
	b = make([]byte, 4)
	for _, p := range parts {
		switch p := p.(type) {
		case string:
			b = append(append(b, p...), 0)
		case []byte:
			b = append(b, p...)
		case uint32:
			b = binary.BigEndian.AppendUint32(b, p)
		case uint64:
			b = binary.BigEndian.AppendUint64(b, p)
		}
	}

	binary.NativeEndian.PutUint16(b, uint16(len(b)))
	binary.NativeEndian.PutUint16(b[2:], kind)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}

	return b
}

// expressions is a rule of a table of family ip.
func expressions(chain string, list ...[]byte) []byte {
	all := append([]byte{2, 0, 0, 0}, nested(1, "filter")...)
	all = append(append(all, nested(2, chain)...), nested(3, uint64(7))...)
	return append(all, nested(4, slices.Concat(list...))...)
}

func expression(name string, data ...[]byte) []byte {
	return nested(1, nested(1, name), nested(2, slices.Concat(data...)))
}

func forwardChain() []byte {
	return slices.Concat([]byte{2, 0, 0, 0}, nested(1, "filter"), nested(3, "FORWARD"),
		nested(4, nested(1, uint32(2)), nested(2, uint32(0))), nested(5, uint32(1)))
}

// Rules of iptables in nftables, a queue and a flow table, which not every kernel has.
func TestReadOtherExpressions(t *testing.T) {
	conntrack := make([]byte, 164) // struct xt_conntrack_mtinfo3: established and related
	binary.NativeEndian.PutUint16(conntrack[146:], 1)
	binary.NativeEndian.PutUint16(conntrack[150:], StateEstablished|StateRelated)
	accept := expression("immediate", nested(1, uint32(0)), nested(2, nested(2, nested(1, uint32(1)))))
	s := ReadRuleset(kernel.FilterDump{
		Chains: [][]byte{forwardChain()},
		Rules: [][]byte{
			expressions("FORWARD", expression("queue", nested(1, []byte{0, 5}))),
			expressions("FORWARD", expression("match", nested(1, "conntrack"), nested(2, uint32(3)),
				nested(3, conntrack)), accept),
			expressions("FORWARD", expression("match", nested(1, "hashlimit")),
				expression("target", nested(1, "LOG"))),
			expressions("FORWARD", expression("flow_offload", nested(1, "ft"))),
		},
		Flowtables: [][]byte{slices.Concat([]byte{2, 0, 0, 0}, nested(1, "filter"), nested(2, "ft"),
			nested(3, nested(3, nested(1, "lan"), nested(1, "wan"))), nested(7, uint32(1)))},
	}, nil)
	f := s.PacketFilter()
	want := &record.PacketFilter{
		Chains: []record.FilterChain{{
			Family: "ip",
			Table:  "filter",
			Name:   "FORWARD",
			Hook:   "forward",
			Policy: "accept",
			Rules:  4,
		}},
		Flowtables: []record.FoundFlowtable{{
			Family:  "ip",
			Table:   "filter",
			Name:    "ft",
			Devices: []string{"lan", "wan"},
			Flags:   []string{"offload"},
		}},
	}
	rule := func(newOnly bool, text string, kinds ...string) {
		want.Rules = append(want.Rules, record.FilterRule{
			Family:  "ip",
			Table:   "filter",
			Chain:   "FORWARD",
			Handle:  7,
			Hooks:   []string{"forward"},
			NewOnly: newOnly,
			Kinds:   kinds,
			Text:    text,
		})
	}
	rule(false, "queue num 5", record.RuleQueue)
	rule(true, "xt hashlimit xt LOG", record.RuleFlowMeter, record.RuleLog)
	rule(true, "flow add @ft", record.RuleOffload)
	diff := cmp.Diff(want, f)
	if diff != "" {
		t.Errorf("packet filter (-want +got):\n%s", diff)
	}
}

// A chain behind a jump that every packet takes keeps established connections from what follows; behind one
// that only some take, it does not.
func TestJumpsAndEstablished(t *testing.T) {
	accept := FoundRule{
		FilterRule: record.FilterRule{Chain: "known"},
		States:     StateEstablished,
		Verdict:    "accept",
	}
	drop := FoundRule{
		FilterRule: record.FilterRule{Chain: "forward", Kinds: []string{record.RuleDrop}},
		Verdict:    "drop",
		Conditions: 1,
	}
	for _, test := range []struct {
		name string
		jump FoundRule
		want bool
	}{
		{"jump", FoundRule{Jump: "known"}, true},
		{"jump of some", FoundRule{Jump: "known", Conditions: 1}, false},
		{"goto of some", FoundRule{Jump: "known", Goto: true, Conditions: 1}, false},
		{"jump of new", FoundRule{Jump: "known", States: StateNew}, false},
		{"jump to nothing", FoundRule{Jump: "empty"}, false},
		{"map", FoundRule{Map: true, Conditions: 1}, false},
		{"accept", FoundRule{Verdict: "accept"}, true},
		{"return", FoundRule{Verdict: "return", States: StateEstablished}, true},
		{"accept within a limit", FoundRule{
			FilterRule: record.FilterRule{Kinds: []string{record.RuleLimit}},
			Verdict:    "accept",
		}, false},
		{"loop", FoundRule{Jump: "forward"}, false},
	} {
		test.jump.Chain = "forward"
		s := Ruleset{
			Chains: []record.FilterChain{{Name: "forward", Hook: "forward"}},
			Rules:  []FoundRule{test.jump, drop, accept},
		}
		f := s.PacketFilter()
		i := slices.IndexFunc(f.Rules, func(r record.FilterRule) bool {
			return slices.Equal(r.Kinds, drop.Kinds)
		})
		if i < 0 || f.Rules[i].NewOnly != test.want {
			t.Errorf("%s: %+v, want only for new connections: %v", test.name, f.Rules, test.want)
		}
	}
}

func FuzzReadRuleset(f *testing.F) {
	for _, e := range [][]byte{expression("limit", nested(1, uint64(9)), nested(2, uint64(1))),
		expression("dynset", nested(1, "m"), nested(7, nested(1, "limit")))} {
		f.Add(forwardChain(), expressions("FORWARD", e))
	}

	f.Fuzz(func(t *testing.T, chain, rule []byte) {
		s := ReadRuleset(kernel.FilterDump{
			Chains:     [][]byte{chain},
			Rules:      [][]byte{rule},
			Flowtables: [][]byte{chain},
		}, func(uint8, string, string) ([][]byte, error) {
			return [][]byte{rule}, nil
		})
		for _, r := range s.PacketFilter().Rules {
			if len(r.Text) > maxRuleText || len(r.Kinds) == 0 {
				t.Errorf("rule %+v", r)
			}
		}
	})
}

func TestAddProc(t *testing.T) {
	v := &record.Inventory{Missing: map[string]string{}}
	AddProc(v, ProcTexts{
		Taps: "sk RefCnt Type Proto Iface R Rmem User Inode\n" +
			"0000000000000000 3 3 0003 2 1 0 0 21\n0000000000000000 3 3 0003 2 1 0 0 22\n" +
			"0000000000000000 3 2 0800 0 1 0 0 23\n0000000000000000 3 3 0000 0 0 0 0 24\n",
		NFQueues:     "    5  31621     2 2 65531     7     1       90  1\n",
		Max:          "65536\n",
		Count:        "12\n",
		BridgeFilter: "1\n",
	}, func(int) string { return "eth0" })
	want := &record.Inventory{
		Missing: map[string]string{},
		Taps: []record.Tap{
			{Device: "eth0", Type: "raw", Protocol: "0003", Sockets: 2},
			{Type: "dgram", Protocol: "0800", Sockets: 1}},
		NFQueues:     []record.NFQueue{{Number: 5, Waiting: 2, Dropped: 7, UserDropped: 1}},
		Conntrack:    &record.Conntrack{Max: 65536, Count: 12},
		BridgeFilter: new(true),
	}
	diff := cmp.Diff(want, v)
	if diff != "" {
		t.Errorf("inventory (-want +got):\n%s", diff)
	}
}
