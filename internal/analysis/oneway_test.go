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

// TestFramesHaveNoCeilingOfSockets: what sockets reach over the loop says
// nothing of an engine that uses none.
func TestFramesHaveNoCeilingOfSockets(t *testing.T) {
	run := &record.Run{Ceilings: []record.Ceiling{{Kind: "udp loopback, 64-byte packets", Unit: "pps", Value: 3e5, PacketSize: 64}}}
	f := record.Factors{"protocol": "udp", "packet_size": "46", "engine": "native"}
	if kind, value := testerCeiling(run, f); kind == "" || value != 3e5 || TesterRate(run, f) != 3e5 {
		t.Errorf("native: got %q, %v, want the ceiling of sockets", kind, value)
	}
	f["engine"] = "xdp"
	if kind, value := testerCeiling(run, f); kind != "" || value != 0 || TesterRate(run, f) < 7e6 {
		t.Errorf("xdp: got %q, %v and a search from %v, want no ceiling and a search from above", kind, value, TesterRate(run, f))
	}
	run.Ceilings = append(run.Ceilings, record.Ceiling{Kind: "xdp direct, 64-byte frames", Unit: "pps", Value: 4e6, Engine: "xdp", Protocol: "udp", PacketSize: 46})
	if kind, value := testerCeiling(run, f); kind != "xdp direct, 64-byte frames" || value != 4e6 || TesterRate(run, f) != 4e6 {
		t.Errorf("xdp, measured: got %q, %v and a search from %v, want its own", kind, value, TesterRate(run, f))
	}
	f["engine"] = "native"
	if kind, value := testerCeiling(run, f); kind != "udp loopback, 64-byte packets" || value != 3e5 {
		t.Errorf("native beside xdp: got %q, %v, want the ceiling of sockets", kind, value)
	}
}
