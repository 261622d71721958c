package guest_test

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// growth returns how far each counter that the probes of a trial read has grown in its window, by node, probe
// and column: "router/snmp/IpReasmReqds". Of a trial that failed before its window it is the growth over
// all samples; what the samples do not cover is left out.
func growth(t *record.Trial) map[string]float64 {
	out := map[string]float64{}
	for node, n := range t.Nodes {
		for i := range n.Samples {
			s := &n.Samples[i]
			if s.Table == nil || len(s.Table.T) == 0 {
				continue
			}

			counters := map[string]bool{}
			for _, m := range s.Metrics {
				counters[m.Name] = m.Counter
			}

			from := t.Window.Start
			to := t.Window.End
			if to == 0 {
				from, to = s.Table.T[0], s.Table.T[len(s.Table.T)-1]
			}

			for k, name := range s.Table.Names {
				if !counters[name[strings.LastIndexByte(name, '/')+1:]] {
					continue
				}

				if grown, ok := statistics.NewCurve(s.Table.T, s.Table.V[k]).Moved(from, to); ok {
					out[node+"/"+s.Probe+"/"+name] = grown
				}
			}
		}
	}
	return out
}

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
		return &record.Trial{
			Window: record.Window{Start: from * 1e9, End: to * 1e9},
			Nodes: map[string]record.NodeData{
				"router": {Samples: []record.Samples{
					{
						Probe:   "netdev",
						Table:   table,
						Metrics: []record.Metric{{Name: "rx_bytes", Counter: true}, {Name: "queue"}},
					},
					{Probe: "power", Unavailable: "no source"}}}},
		}
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
			diff := cmp.Diff(tt.want, growth(tt.t))
			if diff != "" {
				t.Errorf("growth (-want +got):\n%s", diff)
			}
		})
	}
}
