package analysis

import (
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/validity"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// roundTrips are n of them, some lost.
func roundTrips(n int, ns int64) *record.Latency {
	l := &record.Latency{}
	for range n {
		l.RTT = append(l.RTT, ns, -1)
	}
	return l
}

// TestSegments: each part of the path is told what it adds beyond the one before; a hop that was answered
// seldom, or only idle, is none.
func TestSegments(t *testing.T) {
	trial := record.Trial{Hops: []*record.Hop{
		{Number: 2, Addr: "198.51.100.1", Idle: roundTrips(9, 8e6), Loaded: roundTrips(9, 39e6)},
		{Number: 1, Addr: "192.0.2.1", Idle: roundTrips(9, 1e6), Loaded: roundTrips(9, 3e6)},
		{Number: 3, Addr: "198.51.100.9", Idle: roundTrips(9, 9e6), Loaded: roundTrips(2, 9e6)},
		{Number: 4, Addr: "198.51.100.10", Idle: roundTrips(9, 9e6), Silent: "no answer"},
	}}
	g := &group{cell: Cell{Cell: metrics.Cell{Metrics: map[string]statistics.Value{
		metrics.RTT("idle", metrics.Percentiles[0]):   {Median: 10e6},
		metrics.RTT("loaded", metrics.Percentiles[0]): {Median: 42e6}}}}}
	g.cell.Segments = g.segments([]*validity.Graded{{Trial: &trial}})
	want := []Segment{{1, "192.0.2.1", 1e6, 3e6, 2e6}, {2, "198.51.100.1", 8e6, 39e6, 29e6},
		{0, "", 10e6, 42e6, 1e6}}
	if len(g.cell.Segments) != len(want) {
		t.Fatalf("got %+v, want %+v", g.cell.Segments, want)
	}

	for i, s := range g.cell.Segments {
		if s != want[i] {
			t.Errorf("segment %d: got %+v, want %+v", i, s, want[i])
		}
	}

	g.addSegments()
	if len(g.cell.Findings) != 1 || !strings.Contains(g.cell.Findings[0].Text,
		"of the 32.0 ms that the load adds to the median round trip, 2.00 ms from the near end to router 1 "+
			"(192.0.2.1), 29.0 ms from router 1 (192.0.2.1) to router 2 (198.51.100.1), 1.00 ms from router 2") {
		t.Errorf("findings: got %+v", g.cell.Findings)
	}

	g.cell.Findings = nil
	g.cell.Segments = []Segment{{1, "192.0.2.1", 1e6, 1.2e6, .2e6}, {0, "", 2e6, 2.5e6, .3e6}}
	if g.addSegments(); len(g.cell.Findings) > 0 {
		t.Errorf("half a millisecond is told: %+v", g.cell.Findings)
	}

	if s := g.segments([]*validity.Graded{{Trial: &record.Trial{}}}); s != nil {
		t.Errorf("without hops: got %+v", s)
	}
}
