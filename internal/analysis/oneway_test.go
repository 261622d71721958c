package analysis

import (
	"math"
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
			{Direction: record.Up, Counts: []record.DelayCounts{{FromNs: 2000, Packets: 400},
				{FromNs: 9000, Packets: 3}}},
			{Direction: record.Down, Counts: []record.DelayCounts{{FromNs: 1000, Packets: 100},
				{FromNs: 3000, Packets: 497}}},
		}}, 2000, 3000},
		{"few", record.Traffic{Engine: "xdp",
			OneWay: []record.OneWay{{Counts: []record.DelayCounts{{FromNs: 2000, Packets: 40}}}}}, 2000, 0},
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

// TestFramesHaveNoCeilingOfSockets: what sockets reach over the loop says nothing of an engine that uses
// none.
func TestFramesHaveNoCeilingOfSockets(t *testing.T) {
	run := &record.Run{Ceilings: []record.Ceiling{{Kind: "udp loopback, 64-byte packets", Unit: "pps",
		Value: 3e5, PacketSize: 64}}}
	f := record.Factors{"protocol": "udp", "packet_size": "46", "engine": "native"}
	if kind, value := testerCeiling(run, f); kind == "" || value != 3e5 || TesterRate(run, f) != 3e5 {
		t.Errorf("native: got %q, %v, want the ceiling of sockets", kind, value)
	}
	f["engine"] = "xdp"
	if kind, value := testerCeiling(run, f); kind != "" || value != 0 || TesterRate(run, f) < 7e6 {
		t.Errorf("xdp: got %q, %v and a search from %v, want no ceiling and a search from above", kind, value,
			TesterRate(run, f))
	}
	run.Ceilings = append(run.Ceilings, record.Ceiling{Kind: "xdp direct, 64-byte frames", Unit: "pps",
		Value: 4e6, Engine: "xdp", Protocol: "udp", PacketSize: 46})
	if kind, value := testerCeiling(run, f); kind != "xdp direct, 64-byte frames" || value != 4e6 ||
		TesterRate(run, f) != 4e6 {
		t.Errorf("xdp, measured: got %q, %v and a search from %v, want its own", kind, value,
			TesterRate(run, f))
	}
	f["engine"] = "native"
	if kind, value := testerCeiling(run, f); kind != "udp loopback, 64-byte packets" || value != 3e5 {
		t.Errorf("native beside xdp: got %q, %v, want the ceiling of sockets", kind, value)
	}
}

// TestIMIXHasACeilingOfItsOwn: it is never sent in trains, so that ceilings of one size say nothing of it.
func TestIMIXHasACeilingOfItsOwn(t *testing.T) {
	mix := record.Factors{"protocol": "udp", "packet_size": record.IMIX, "engine": "native"}
	run := &record.Run{Ceilings: []record.Ceiling{
		{Kind: "udp loopback, 350-byte packets", Unit: "pps", Value: 9e5, PacketSize: 350},
		{Kind: "udp loopback, IMIX packets", Unit: "pps", Value: 2e5, IMIX: true},
	}}
	if kind, value := testerCeiling(run, mix); value != 2e5 {
		t.Errorf("a mix: got %q, %v, want its own", kind, value)
	}
	if kind, value := testerCeiling(run, record.Factors{"protocol": "udp", "packet_size": "336",
		"engine": "native"}); value != 9e5 {
		t.Errorf("one size: got %q, %v, want that of the nearest size", kind, value)
	}
	run.Ceilings = run.Ceilings[:1]
	if kind, value := testerCeiling(run, mix); kind != "" || value != 0 {
		t.Errorf("a mix without a ceiling: got %q, %v, want none", kind, value)
	}
}

func TestPayloadBitsOfAMix(t *testing.T) {
	trial := &record.Trial{Row: record.Row{Factors: record.Factors{"ip": "4", "packet_size": record.IMIX}},
		Search: &record.SearchTrial{Unit: record.UnitPackets}}
	if got, want := payloadBits(trial), 8*(4030.0/12-28); math.Abs(got-want) > 1e-9 {
		t.Errorf("IPv4: got %v bits, want %v", got, want)
	}
	trial.Row.Factors["ip"] = "6"
	if got, want := payloadBits(trial), 8*(4170.0/12-48); math.Abs(got-want) > 1e-9 {
		t.Errorf("IPv6: got %v bits, want %v", got, want)
	}
}
