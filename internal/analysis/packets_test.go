package analysis

import (
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

func packetFlow(gap int64, delays ...record.DelayCount) record.Flow {
	return record.Flow{SenderNs: 1e9, ReceiverNs: 1e9, Packets: &record.Packets{Sent: 90, Unsent: 10,
		Received: 80, Lost: 10,
		Duplicates: new(int64), Reordered: new(int64), Gaps: []record.Gap{{Length: 1, Gaps: 1, Packets: 1},
			{Length: gap, Gaps: 1, Packets: gap}},
		Delay: &record.DelayVariation{Counts: delays}}}
}

func TestPacketsOneByOne(t *testing.T) {
	tr := &record.Traffic{Load: record.Load{Protocol: "udp"}, Flows: []record.Flow{
		packetFlow(9, record.DelayCount{AboveNs: 0, Packets: 197}, record.DelayCount{AboveNs: 640,
			Packets: 1}),
		packetFlow(4, record.DelayCount{AboveNs: 64, Packets: 1}, record.DelayCount{AboveNs: 9000,
			Packets: 1})}}
	m := newMeasured()
	m.addPackets(tr)
	for name, want := range map[string]float64{lossRatio: .2, unsentRatio: .1, longestGap: 9,
		delayVariation: 64, duplicates: 0, reordered: 0} {
		if got, ok := m.values[name]; !ok || got != want {
			t.Errorf("%s: got %v (%v), want %v", name, got, ok, want)
		}
	}
}

func TestPacketsCountedByLength(t *testing.T) {
	f := packetFlow(1)
	f.Packets.Duplicates, f.Packets.Reordered, f.Packets.Gaps, f.Packets.Delay = nil, nil, nil, nil
	m := newMeasured()
	m.addPackets(&record.Traffic{Load: record.Load{Protocol: "udp"}, Flows: []record.Flow{f}})
	for _, name := range []string{duplicates, reordered, delayVariation, longestGap} {
		if v, ok := m.values[name]; ok || m.missing[name] == "" {
			t.Errorf("%s: got %v, want none and a reason", name, v)
		}
	}
	if m.values[lossRatio] != .2 {
		t.Errorf("loss: got %v, want .2", m.values[lossRatio])
	}
}
