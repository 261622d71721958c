package analysis

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/diagnosis"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// inventoryOf is that of a router with a shaper and a rule, whose counters and handles change by themselves.
func inventoryOf(seed int64) *record.Inventory {
	return &record.Inventory{
		Devices: []record.NetDevice{{
			Name: "wan",
			Kind: "veth",
			Queues: []record.QueueFacts{{
				Kind:    "tbf",
				Handle:  "800" + string(rune('0'+seed)) + ":",
				Parent:  "root",
				RateBps: 150e6,
				Level:   "tbf rate 150M burst 5k limit 6k",
			}},
		}},
		Filter: &record.PacketFilter{
			Chains: []record.FilterChain{{
				Family: "inet",
				Table:  "fw4",
				Name:   "forward",
				Hook:   "forward",
				Policy: "drop",
				Rules:  3,
			}, {Family: "ip", Table: "chokepoint_nat", Name: "x", Own: true}},
			Rules: []record.FilterRule{{
				Family:  "inet",
				Table:   "fw4",
				Chain:   "forward",
				Handle:  seed,
				Hooks:   []string{"forward"},
				Kinds:   []string{record.RuleLimit, record.RuleDrop},
				Text:    "limit rate over 2 mbytes/second drop",
				Packets: &seed,
				Bytes:   &seed,
			}},
		},
		Conntrack: &record.Conntrack{Max: 100, Count: seed},
	}
}

// What somebody changed on the router between two runs is a cause of what differs; counters are none.
func TestRunsDifferInInventories(t *testing.T) {
	facts := map[string]string{"kernel": "6.1"}
	compared := func(change func(v *record.Inventory)) (out []string) {
		a := Derive(quickRun(3))
		b := Derive(quickRun(3))
		other := inventoryOf(7)
		change(other)
		a.Environment = []record.Environment{{Node: "router", Facts: facts, Inventory: inventoryOf(3)}}
		b.Environment = []record.Environment{{Node: "router", Facts: facts, Inventory: other}}
		for _, c := range CompareRuns(a, b).Changes {
			if !c.Cause || c.Kind != "environment" {
				t.Errorf("%+v is no cause", c)
			}

			out = append(out, c.Name+": "+c.A+" → "+c.B)
		}

		return out
	}
	for _, test := range []struct {
		name   string
		change func(v *record.Inventory)
		want   []string
	}{
		{"counters", func(*record.Inventory) {}, nil},
		{"rate", func(v *record.Inventory) {
			v.Devices[0].Queues[0].Level = "tbf rate 80M burst 5k limit 6k"
		}, []string{"queues of wan on router: tbf rate 150M burst 5k limit 6k → " +
			"tbf rate 80M burst 5k limit 6k"}},
		{"rule", func(v *record.Inventory) {
			v.Filter.Chains[0].Rules, v.Filter.Rules = 4, append(v.Filter.Rules, record.FilterRule{
				Family: "inet",
				Table:  "fw4",
				Chain:  "forward",
				Text:   "queue num 5",
			})
		}, []string{"rule in inet fw4 forward: queue num 5 on router: none → 1 rule",
			"rules from inet fw4 forward on router: 3 (forward drop, priority 0) → 4 (forward drop, " +
				"priority 0)"}},
		{"flowtable and tap", func(v *record.Inventory) {
			v.Filter.Flowtables = []record.FoundFlowtable{{
				Family:  "inet",
				Table:   "fw4",
				Name:    "ft",
				Devices: []string{"lan", "wan"},
			}}
			v.Taps = []record.Tap{{Device: "wan", Type: "raw", Protocol: "0003", Sockets: 2}}
		}, []string{"flowtable inet fw4 ft on router: none → lan wan",
			"packet sockets on wan on router: none → 2 (raw, protocol 0003)"}},
		{"not read", func(v *record.Inventory) {
			v.Filter = nil
			v.Missing = map[string]string{"filter": "operation not permitted"}
		}, []string{"inventory: filter on router: read → unknown"}},
		{"another device", func(v *record.Inventory) { v.Devices[0].Name = "wan2" }, []string{
			"kind of wan on router: veth → none", "kind of wan2 on router: none → veth",
			"queues of wan on router: tbf rate 150M burst 5k limit 6k → none",
			"queues of wan2 on router: none → tbf rate 150M burst 5k limit 6k"}},
	} {
		diff := cmp.Diff(test.want, compared(test.change))
		if diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
}

// A remedy that lets connections skip what the router's owner has set up is not offered.
func TestRemediesTakeNothingAway(t *testing.T) {
	all := []diagnosis.Remedy{{Do: "skip", Factor: diagnosis.FlowtableFactor}, {Do: "other"}}
	run, _ := quickRun(1)
	for name, test := range map[string]struct {
		v    *record.Inventory
		want int
	}{"rule": {inventoryOf(1), 1}, "nothing": {&record.Inventory{Filter: &record.PacketFilter{}}, 2},
		"older run": {nil, 2}} {
		run.Environments = []record.Environment{{Node: run.Tested().Name, Inventory: test.v}}
		got := withoutLoss(&run, all)
		if len(got) != test.want || !slices.ContainsFunc(got, func(r diagnosis.Remedy) bool {
			return strings.HasPrefix(r.Do, "other")
		}) {
			t.Errorf("%s: %+v, want %d remedies", name, got, test.want)
		}
	}
}
