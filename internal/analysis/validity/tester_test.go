package validity

import (
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// TestFramesHaveNoCeilingOfSockets: what sockets reach over the loop says nothing of an engine that uses
// none.
func TestFramesHaveNoCeilingOfSockets(t *testing.T) {
	run := &record.Run{Ceilings: []record.Ceiling{{
		TrafficKind: record.TrafficKind{PacketSize: 64},
		Kind:        "udp loopback, 64-byte packets",
		Unit:        "pps",
		Value:       3e5,
	}}}
	f := record.Factors{"protocol": "udp", "packet_size": "46", "engine": "native"}
	if kind, value := TesterCeiling(run, f); kind == "" || value != 3e5 || TesterRate(run, f) != 3e5 {
		t.Errorf("native: got %q, %v, want the ceiling of sockets", kind, value)
	}

	f["engine"] = "xdp"
	if kind, value := TesterCeiling(run, f); kind != "" || value != 0 || TesterRate(run, f) < 7e6 {
		t.Errorf("xdp: got %q, %v and a search from %v, want no ceiling and a search from above", kind, value,
			TesterRate(run, f))
	}

	run.Ceilings = append(run.Ceilings, record.Ceiling{
		TrafficKind: record.TrafficKind{Engine: "xdp", Protocol: "udp", PacketSize: 46},
		Kind:        "xdp direct, 64-byte frames",
		Unit:        "pps",
		Value:       4e6,
	})
	if kind, value := TesterCeiling(run, f); kind != "xdp direct, 64-byte frames" || value != 4e6 ||
		TesterRate(run, f) != 4e6 {
		t.Errorf("xdp, measured: got %q, %v and a search from %v, want its own", kind, value,
			TesterRate(run, f))
	}

	f["engine"] = "native"
	if kind, value := TesterCeiling(run, f); kind != "udp loopback, 64-byte packets" || value != 3e5 {
		t.Errorf("native beside xdp: got %q, %v, want the ceiling of sockets", kind, value)
	}
}

// TestIMIXHasACeilingOfItsOwn: it is never sent in UDP GSO batches, so that ceilings of one size say
// nothing of it.
func TestIMIXHasACeilingOfItsOwn(t *testing.T) {
	mix := record.Factors{"protocol": "udp", "packet_size": factor.IMIX, "engine": "native"}
	run := &record.Run{Ceilings: []record.Ceiling{
		{
			TrafficKind: record.TrafficKind{PacketSize: 350},
			Kind:        "udp loopback, 350-byte packets",
			Unit:        "pps",
			Value:       9e5,
		},
		{
			TrafficKind: record.TrafficKind{IMIX: true},
			Kind:        "udp loopback, IMIX packets",
			Unit:        "pps",
			Value:       2e5,
		},
	}}
	if kind, value := TesterCeiling(run, mix); value != 2e5 {
		t.Errorf("a mix: got %q, %v, want its own", kind, value)
	}

	if kind, value := TesterCeiling(run, record.Factors{"protocol": "udp", "packet_size": "336",
		"engine": "native"}); value != 9e5 {
		t.Errorf("one size: got %q, %v, want that of the nearest size", kind, value)
	}

	run.Ceilings = run.Ceilings[:1]
	if kind, value := TesterCeiling(run, mix); kind != "" || value != 0 {
		t.Errorf("a mix without a ceiling: got %q, %v, want none", kind, value)
	}
}
