package report

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// TestFoundItems: what limits, drops, redirects or copies packets has a line; what is ours, or of no
// consequence, has none unless all is asked for; what could not be read is told there.
func TestFoundItems(t *testing.T) {
	seven := int64(7)
	yes := true
	d := &analysis.Document{Environment: []record.Environment{{Node: "client"}, {
		Node: "router",
		Inventory: &record.Inventory{
			Devices: []record.NetDevice{
				{
					Name:      "lan",
					Port:      "lan",
					Kind:      record.DevicePhysical,
					MTU:       1500,
					SpeedMbps: 1000,
					Queues: []record.QueueFacts{{
						Kind:   "fq_codel",
						Parent: "root",
						Level:  "fq_codel limit 10240",
					}},
					Filters: []record.QueueFilter{{
						Parent: "ingress",
						Kind:   "matchall",
						Action: "redirect",
						To:     "ifb0",
					}},
				},
				{
					Name:   "wan",
					Port:   "wan",
					Kind:   "veth",
					MTU:    1500,
					Queues: []record.QueueFacts{{Kind: "pfifo_fast", Parent: "root"}},
				},
				{Name: "ifb0", Kind: "ifb", Queues: []record.QueueFacts{{Kind: "cake", RateBps: 40e6}}},
				{Name: "br0", Kind: "bridge"},
			},
			Filter: &record.PacketFilter{
				Chains: []record.FilterChain{
					{Family: "inet", Table: "mine", Name: "over", Hook: "forward", Rules: 3},
					{Family: "ip", Table: "ours", Name: "nat", Hook: "postrouting", Rules: 1, Own: true}},
				Rules: []record.FilterRule{{
					Family:  "inet",
					Table:   "mine",
					Chain:   "over",
					Handle:  4,
					Text:    "limit rate over 2 mbytes/second drop",
					Packets: &seven,
				},
					{Own: true, Text: "masquerade"}},
				Flowtables: []record.FoundFlowtable{{Name: "ft", Devices: []string{"lan", "wan"}}},
			},
			Taps:         []record.Tap{{Type: "raw", Protocol: "0003", Sockets: 2}},
			NFQueues:     []record.NFQueue{{Number: 5, Dropped: 3, UserDropped: 1}},
			BridgeFilter: &yes,
			Missing:      map[string]string{"iptables": "permission denied"},
		},
	}}}
	want := []string{
		"lan (physical): MTU 1500; 1.00 Gbit/s; fq_codel limit 10240; filter matchall redirect ifb0",
		"ifb0 (ifb): cake rate 40.0 Mbit/s", "br0 (bridge)",
		"packet filter: 3 rules at forward (inet mine over)",
		"rule 4 of inet mine over: limit rate over 2 mbytes/second drop (7 packets before the run)",
		"flowtable ft of lan, wan", "2 packet sockets (raw, protocol 0003) copy packets of all devices",
		"a program reads packets from NFQUEUE 5, which has dropped 4",
		"the packet filter also sees what bridges forward (bridge-nf-call-iptables)",
	}
	lines := func(all bool) (out []string) {
		for _, item := range foundItems(newView(d), all) {
			if item.Kind != "router" {
				t.Errorf("got a line of %s, want the router's alone", item.Kind)
			}

			out = append(out, item.Text)
		}
		return out
	}
	diff := cmp.Diff(want, lines(false))
	if diff != "" {
		t.Error(diff)
	}

	all := strings.Join(lines(true), "\n")
	for _, more := range []string{"wan (veth): MTU 1500; pfifo_fast",
		"not known: iptables: permission denied"} {
		if !strings.Contains(all, more) {
			t.Errorf("got %s, want %s in it", all, more)
		}
	}
}
