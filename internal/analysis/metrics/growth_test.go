package metrics

import (
	"math"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/google/go-cmp/cmp"
)

// TestGrowthCountsTheWindow: counters grow by what they grew in the window, a reading that is no counter is
// left out, and so is what the samples miss.
func TestGrowthCountsTheWindow(t *testing.T) {
	table := record.NewTable("wan/rx_bytes", "lan/rx_bytes", "queue")
	for at := range int64(11) { // 100 and 7 per second
		lan := 7 * float64(at)
		if at > 3 {
			lan = math.NaN()
		}
		table.Append(at*1e9, 100*float64(at), lan, 5)
	}
	trial := func(from, to int64) *record.Trial {
		return &record.Trial{Window: record.Window{Start: from * 1e9, End: to * 1e9},
			Nodes: map[string]record.NodeData{
				"router": {Samples: []record.Samples{
					{Probe: "netdev", Table: table,
						Metrics: []record.Metric{{Name: "rx_bytes", Counter: true}, {Name: "queue"}}},
					{Probe: "power", Unavailable: "no source"}}}}}
	}
	tests := []struct {
		name string
		t    *record.Trial
		want map[string]float64
	}{
		{"a window", trial(4, 8), map[string]float64{"router/netdev/wan/rx_bytes": 400}},
		{"an early window", trial(1, 3), map[string]float64{"router/netdev/wan/rx_bytes": 200,
			"router/netdev/lan/rx_bytes": 14}},
		{"no window, since the trial failed", trial(0, 0),
			map[string]float64{"router/netdev/wan/rx_bytes": 1000}},
		{"a window after the samples", trial(12, 14), map[string]float64{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, Growth(tt.t)); diff != "" {
				t.Errorf("growth (-want +got):\n%s", diff)
			}
		})
	}
}
