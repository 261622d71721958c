package analysis

import (
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

func TestOneWayDelaysOfBothDirections(t *testing.T) {
	tests := []struct {
		name     string
		traffic  record.Traffic
		p50, p99 float64 // 0 = missing
	}{
		{"two directions", record.Traffic{Engine: "xdp", OneWay: []record.OneWay{
			{Direction: record.Up, Counts: []record.DelayCounts{{FromNs: 2000, Packets: 400}, {FromNs: 9000, Packets: 3}}},
			{Direction: record.Down, Counts: []record.DelayCounts{{FromNs: 1000, Packets: 100}, {FromNs: 3000, Packets: 497}}},
		}}, 2000, 3000},
		{"few", record.Traffic{Engine: "xdp", OneWay: []record.OneWay{{Counts: []record.DelayCounts{{FromNs: 2000, Packets: 40}}}}}, 2000, 0},
		{"none", record.Traffic{Engine: "xdp"}, 0, 0},
		{"another engine", record.Traffic{Engine: "native"}, 0, 0},
	}
	for _, tt := range tests {
		m := &measured{values: map[string]float64{}, missing: map[string]string{}}
		m.addOneWay(&tt.traffic)
		if m.values[oneWayP50] != tt.p50 || m.values[oneWayP99] != tt.p99 {
			t.Errorf("%s: got %v, want p50 %v and p99 %v", tt.name, m.values, tt.p50, tt.p99)
		}
		if want := tt.p99 == 0 && tt.traffic.Engine == "xdp"; (m.missing[oneWayP99] != "") != want {
			t.Errorf("%s: missing %v, want it among them: %v", tt.name, m.missing, want)
		}
	}
}
