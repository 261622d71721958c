package diagnosis

import (
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// TestSlowSegments: the added RTT that queues do not explain is located by probes; a queue's time counts
// once, and what no probe waited for was spent in the endpoints.
func TestSlowSegments(t *testing.T) {
	const ms = 1e6
	link := func(from, to, port string) record.TopoLink {
		return record.TopoLink{Ends: [2]record.TopoPort{{Node: from, Port: port}, {Node: to, Port: port}}}
	}
	run := &record.Run{Topologies: []record.Topology{{
		Near:  "client",
		Far:   "server",
		Links: []record.TopoLink{link("client", "router", "lan"), link("router", "server", "wan")},
	}}}
	probe := func(rtts ...int64) *record.Latency {
		l := &record.Latency{}
		for _, r := range rtts {
			l.RTT = append(l.RTT, r*ms)
		}
		return l
	}
	idle := []int64{1, 1, 1, 1, 1, 1}
	slow := []int64{1, 13, 13, 13, 13, 13}   // 10 ms more on average
	slower := []int64{1, 25, 25, 25, 25, 25} // 20 ms more
	for _, tt := range []struct {
		name        string
		hop, far    []int64
		added, wait float64 // ms; the time in the router's wan queue
		want        string
	}{
		{"before the router", slow, slow, 10, 0, "between the client and the router"},
		{"behind the router", idle, slow, 10, 0, "between the router and the server"},
		{"a queue and the rest", slow, slower, 20, 10, "between the client and the router"},
		{"probes that bypass the queue", idle, idle, 20, 12, "in the endpoints"},
		{"evenly", slow, slower, 30, 0,
			"between the client and the router and between the router and the server"},
		{"a path without the far end", slow, nil, 30, 0, ""},
		{"a silent router", nil, slow, 10, 0, "between the client and the server"},
		{"no probe", nil, nil, 10, 0, ""},
	} {
		o := &Observation{
			Run:     run,
			Metrics: &metrics.Measured{Values: map[string]float64{metrics.MinRTTTCP: ms}},
			Trial: &record.Trial{
				Loaded: probe(tt.far...),
				Hops:   []*record.Hop{{Number: 1, Loaded: probe(tt.hop...)}},
			},
		}
		added := tt.added * ms
		l := &Ledger{
			AddedNs:  &added,
			WaitedNs: tt.wait * ms,
			Data:     []Account{{Node: "router", Element: "wan", Stage: StageQueue, WaitedNs: tt.wait * ms}},
		}
		if got := o.slowSegments(l); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}

// TestHopProbes: a probe and its answer count at the ports that they pass on the way to their router, and at
// no port behind it, although a path between two machines has more routers than its topology.
func TestHopProbes(t *testing.T) {
	ends := func(a, b, port string) record.TopoLink {
		return record.TopoLink{Ends: [2]record.TopoPort{{Node: a, Port: port}, {Node: b, Port: port}}}
	}
	o := &Observation{
		Run: &record.Run{Topologies: []record.Topology{{
			Links: []record.TopoLink{ends("client", "router", "lan"), ends("router", "server", "wan")},
		}}},
		Trial: &record.Trial{Hops: []*record.Hop{
			{Number: 1, Loaded: &record.Latency{RTT: []int64{1, 1, -1}, Size: 100}},
			{Number: 3, Loaded: &record.Latency{RTT: []int64{1, -1}, Size: 100}},
			{Number: 4, Silent: "no answer"},
		}},
	}
	for _, tt := range []struct {
		at        place
		direction string
		want      frames
	}{
		{place{"client", "lan"}, "tx", frames{5, 570}},
		{place{"client", "lan"}, "rx", frames{3, 342}},
		{place{"router", "lan"}, "rx", frames{5, 570}},
		{place{"router", "lan"}, "tx", frames{3, 342}},
		{place{"router", "wan"}, "tx", frames{}},
		{place{"server", "wan"}, "rx", frames{}},
		{place{"router", "ifb0"}, "tx", frames{}},
	} {
		if got := o.hopProbes(tt.at, tt.direction); got != tt.want {
			t.Errorf("%v %s: got %+v, want %+v", tt.at, tt.direction, got, tt.want)
		}
	}
}
