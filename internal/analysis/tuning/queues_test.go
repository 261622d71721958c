package tuning

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/diagnosis"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// router has a LAN port with the kernel's default and a WAN port with these queues.
func router(wan *record.NetDevice) Situation {
	shape := record.Topology{
		Name:    "plain",
		Near:    "client",
		Far:     "server",
		Routers: []string{"router"},
		Nodes:   []record.TopoNode{{Name: "client"}, {Name: "router", Router: true}, {Name: "server"}},
		Links: []record.TopoLink{
			{Ends: [2]record.TopoPort{{Node: "client", Port: "lan"}, {Node: "router", Port: "lan"}}},
			{Ends: [2]record.TopoPort{{Node: "router", Port: "wan"}, {Node: "server", Port: "wan"}}}},
	}
	q := &record.Inventory{Devices: []record.NetDevice{{
		Name:   "eth0",
		Port:   "lan",
		Queues: []record.QueueFacts{{Kind: "noqueue", Handle: "0:", Parent: "root", Level: "noqueue"}},
	}}}
	if wan != nil {
		wan.Name, wan.Port = "eth1", "wan"
		q.Devices = append(q.Devices, *wan)
	}

	return Situation{
		Found: analysis.Document{
			Topologies:  []record.Topology{shape},
			Environment: []record.Environment{{Node: "router", Inventory: q}},
		},
		Cells: []factor.Cell{{"topology": "plain", "protocol": "tcp"}},
		Diagnoses: []*diagnosis.Diagnosis{{Causes: []diagnosis.Cause{{
			Class:      diagnosis.SmallQueue,
			Confidence: .9,
			GainAtMost: 2,
		}}}},
		Catalogue: &factor.Catalogue{
			Factors: append(factor.Base(factor.Options{}), knob.Factors(knob.All())...),
			Shapes:  []factor.Shape{shape},
		},
	}
}

func device(queues ...record.QueueFacts) *record.NetDevice {
	return &record.NetDevice{Queues: queues}
}

func root(kind, handle, level string, rate float64) record.QueueFacts {
	return record.QueueFacts{Kind: kind, Handle: handle, Parent: "root", Level: level, RateBps: rate}
}

// Owners' shapers of several kinds: what is tried keeps each rate.
func TestCandidatesKeepWhatWasFound(t *testing.T) {
	tbf := root("tbf", "8001:", "tbf rate 150M burst 5k limit 6k", 150e6)
	tbf.LimitBytes = 6144
	inner := record.QueueFacts{
		Kind:       "tbf",
		Handle:     "10:",
		Parent:     "1:1",
		RateBps:    20e6,
		LimitBytes: 3000,
		Level:      "tbf rate 20M burst 16k limit 3000",
	}
	cake := root("cake", "8003:", "cake bandwidth 80M rtt 20ms memlimit 512k nat", 80e6)
	cake.LimitBytes = 512 << 10
	class := func(kind, handle, parent string, rate, ceil float64) record.QueueFacts {
		return record.QueueFacts{
			Class:   true,
			Kind:    kind,
			Handle:  handle,
			Parent:  parent,
			RateBps: rate,
			CeilBps: ceil,
		}
	}
	htb := []record.QueueFacts{root("htb", "1:", "", 0), class("htb", "1:1", "1:", 150e6, 150e6),
		class("htb", "1:10", "1:1", 100e6, 150e6), class("htb", "1:20", "1:1", 50e6, 150e6),
		{Kind: "pfifo", Handle: "20:", Parent: "1:20", Level: "pfifo limit 5", LimitPackets: 5}}
	peak := root("tbf", "8001:", "", 150e6)
	peak.Missing = "has a peak rate"
	flows := root("fq", "8004:", "fq limit 100", 0)
	flows.FlowRateBps, flows.Missing = 30e6, "its owner has set maxrate"
	redirect := device(root("mq", "0:", "mq", 0))
	redirect.Filters = []record.QueueFilter{{Parent: "ingress", Kind: "u32", Action: "redirect", To: "ifb0"}}
	tests := []struct {
		name string
		wan  *record.NetDevice
		want []string // at the WAN port, or at all ports
	}{
		{"tbf", device(tbf), []string{"queue@router.wan=tbf rate 150M burst 93750 limit 375000"}},
		{"tbf with its owner's FIFO", device(tbf, record.QueueFacts{
			Kind:   "pfifo",
			Handle: "2:",
			Parent: "8001:1",
			Level:  "pfifo limit 7",
		}), nil},
		{"tbf with a peak rate", device(peak), nil},
		{"htb", device(htb...), []string{
			"queue@router.wan=parent 1:10 fq_codel limit 10240 flows 1024 target 5ms interval 100ms memory_limit " +
				"32m, parent 1:20 fq_codel limit 10240 flows 1024 target 5ms interval 100ms memory_limit 32m",
			"queue@router.wan=parent 1:10 pfifo limit 1000, parent 1:20 pfifo limit 1000"}},
		{"hfsc with a tbf below", device(root("hfsc", "1:", "", 0), class("hfsc", "1:1", "1:", 40e6, 50e6), inner),
			[]string{"queue@router.wan=parent 1:1 tbf rate 20M burst 16k limit 50000"}},
		{"cake", device(cake), []string{"queue@router.wan=cake bandwidth 80M rtt 20ms memlimit 4m nat"}},
		{"fq with maxrate", device(flows), nil},
		{"ifb", redirect, []string{
			"queue=fq_codel limit 10240 flows 1024 target 5ms interval 100ms memory_limit 32m",
			"queue=pfifo limit 1000"}},
		{"short FIFO without a rate", device(root("pfifo", "5:", "pfifo limit 2", 0)), []string{
			"queue=fq_codel limit 10240 flows 1024 target 5ms interval 100ms memory_limit 32m",
			"queue=pfifo limit 1000"}},
		{"emulated link", device(root("netem", "5:", "netem delay 5ms", 0)), nil},
		{"kind that we do not know", device(record.QueueFacts{
			Kind:    "dualpi2",
			Handle:  "5:",
			Parent:  "root",
			Missing: "not read",
		}), nil},
		{"not read", &record.NetDevice{Missing: "tc: not found"}, nil},
		{"not there", nil, nil},
	}
	for _, test := range tests {
		s := router(test.wan)
		var got []string
		for _, c := range Candidates(s) {
			why := s.Undoes(c)
			if why != "" {
				t.Errorf("%s: %s: %s", test.name, c, why)
			}

			for name := range c.Levels {
				plain, _ := factor.Split(name)
				if plain == "queue" && name != "queue@router.lan" || plain == "shape" || plain == "policer" {
					got = append(got, c.String())
				}
			}
		}

		diff := cmp.Diff(test.want, got)
		if diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
}

// What is named by hand, or was kept by an earlier result, takes no rate away either.
func TestUndoes(t *testing.T) {
	tbf := router(device(root("tbf", "8001:", "tbf rate 150M burst 5k limit 6k", 150e6)))
	leaf := router(device(root("hfsc", "1:", "", 0), record.QueueFacts{
		Class:   true,
		Kind:    "hfsc",
		Handle:  "1:1",
		Parent:  "1:",
		RateBps: 40e6,
	}))
	tests := []struct {
		s       Situation
		change  Change
		refused bool
	}{
		{tbf, change("queue@router.wan", "pfifo limit 1000"), true},
		{tbf, change("queue", "pfifo limit 1000"), true},
		{tbf, change("queue@router", "tbf rate 200M burst 5k limit 6k"), true},
		{tbf, change("queue@router.wan", "tbf rate 150M burst 64k limit 375000"), false},
		{tbf, change("shape@router.wan", "150M"), true},
		{tbf, change("shape", "off"), true},
		{tbf, change("queue@router.lan", "pfifo limit 1000"), false},
		{tbf, change("queue@router.wan", ""), false},
		{tbf, change("governor", "performance"), false},
		{leaf, change("queue@router.wan", "parent 1:1 pfifo limit 1000"), false},
		{leaf, change("queue@router.wan", "pfifo limit 1000"), true},
	}
	for _, test := range tests {
		why := test.s.Undoes(test.change)
		if (why != "") != test.refused {
			t.Errorf("%s: %q, want refused %v", test.change, why, test.refused)
		}
	}
}

// What is printed to make a change permanent keeps the rate, and tc takes it.
func TestCommandsKeepTheRate(t *testing.T) {
	tests := []struct {
		change Change
		want   string
	}{
		{change("queue@router.wan", "tbf rate 150M burst 93750 limit 375000"),
			"tc qdisc replace dev WAN root tbf rate 150Mbit burst 93750 limit 375000"},
		{change("queue@router.wan", "parent 1:10 pfifo limit 1000, parent 1:20 pfifo limit 1000"),
			"tc qdisc replace dev WAN parent 1:20 pfifo limit 1000"},
		{change("queue@router.wan", "cake bandwidth 80M rtt 100ms memlimit 4m"),
			"tc qdisc replace dev WAN root cake bandwidth 80Mbit rtt 100ms memlimit 4m"},
	}
	for _, test := range tests {
		for _, p := range test.change.Commands(plainCell) {
			if p.System == "linux" && !slices.Contains(p.Commands, test.want) {
				t.Errorf("%s: %q, want %q", test.change, p.Commands, test.want)
			}

			if p.System == "routeros" && strings.Contains(test.change.String(), "parent") {
				t.Errorf("%s on routeros, which has no such classes: %q", test.change, p.Commands)
			}
		}
	}
}

// A result for a router whose rate its owner has changed has expired.
func TestResultHoldsForTheRates(t *testing.T) {
	s := router(device(root("tbf", "8001:", "tbf rate 150M burst 5k limit 6k", 150e6)))
	holds := HoldsFor(&s.Found, nil)
	if holds["router.wan rates"] != "tbf 150 Mbit/s" {
		t.Errorf("holds for %v", holds)
	}
}

// A flowtable is not tried where connections in it would skip what the router's owner has set up.
func TestUndoesRules(t *testing.T) {
	rule := record.FilterRule{
		Family: "inet",
		Table:  "fw4",
		Chain:  "forward",
		Handle: 15,
		Hooks:  []string{"forward"},
		Kinds:  []string{record.RuleLimit, record.RuleDrop},
		Text:   "limit rate over 2 mbytes/second drop",
	}
	with := func(change func(r *record.FilterRule)) *record.PacketFilter {
		r := rule
		change(&r)
		return &record.PacketFilter{Rules: []record.FilterRule{r}}
	}
	kind := func(kinds ...string) *record.PacketFilter {
		return with(func(r *record.FilterRule) { r.Kinds = kinds })
	}
	for _, test := range []struct {
		name    string
		filter  *record.PacketFilter
		missing string
		machine bool
		want    string // part of the reason
	}{
		{"limit", with(func(*record.FilterRule) {}), "", false, "does on router: limit rate over 2 mbytes/second " +
			"drop (inet fw4 forward, handle 15)"},
		{"drop", kind(record.RuleDrop), "", false, "a rule of its owner's"},
		{"queue", kind(record.RuleQueue), "", false, "a rule of its owner's"},
		{"log", kind(record.RuleLog), "", false, "a rule of its owner's"},
		{"accounting", kind(record.RuleCount), "", true, "a rule of its owner's"},
		{"MSS", kind(record.RuleTCPOption), "", true, ""},
		{"ours", with(func(r *record.FilterRule) { r.Own = true }), "", true, ""},
		{"new connections", with(func(r *record.FilterRule) { r.NewOnly = true }), "", true, ""},
		{"input", with(func(r *record.FilterRule) { r.Hooks = []string{"input"} }), "", true, ""},
		{"bridge", with(func(r *record.FilterRule) { r.Family = "bridge" }), "", true, ""},
		{"flowtable", &record.PacketFilter{Flowtables: []record.FoundFlowtable{{
			Family: "inet",
			Table:  "fw4",
			Name:   "ft",
		}}}, "", false, "is on router already: inet fw4 ft"},
		{"our flowtable", &record.PacketFilter{Flowtables: []record.FoundFlowtable{{Own: true}}}, "", true, ""},
		{"iptables-legacy", &record.PacketFilter{LegacyEntries: map[string]int{"nat": 2, "ip6 filter": 3}}, "", true,
			"iptables-legacy (ip6 filter)"},
		{"iptables-legacy, NAT alone", &record.PacketFilter{LegacyEntries: map[string]int{"nat": 2}}, "", true, ""},
		{"not read", nil, "operation not permitted", true, "could not be read: operation not permitted"},
		{"not read in a lab", nil, "operation not permitted", false, ""},
		{"nothing", &record.PacketFilter{}, "", true, ""},
	} {
		s := router(nil)
		v := s.Found.Environment[0].Inventory
		if v.Filter = test.filter; test.missing != "" {
			v.Missing = map[string]string{"filter": test.missing}
		}

		s.Found.Nodes = []record.NodeFacts{{Name: "router", CPUs: record.CPUsVirtual}}
		if test.machine {
			s.Found.Nodes[0].CPUs = record.CPUsOwn
		}

		for _, name := range []string{"flowtable", "flowtable@router"} {
			why := s.Undoes(change(name, "on"))
			if (why != "") != (test.want != "") || !strings.Contains(why, test.want) {
				t.Errorf("%s, %s: %q, want %q", test.name, name, why, test.want)
			}
		}

		if why := s.Undoes(change("flowtable", "")); why != "" {
			t.Errorf("%s: taking it away: %q", test.name, why)
		}
	}
}
