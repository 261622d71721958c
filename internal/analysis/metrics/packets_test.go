package metrics

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
		{"two directions", record.Traffic{
			Engine: "xdp",
			OneWay: []record.OneWay{
				{
					Direction: record.Up,
					Counts: []record.DelayCounts{{FromNs: 2000, Packets: 400},
						{FromNs: 9000, Packets: 3}},
				},
				{
					Direction: record.Down,
					Counts: []record.DelayCounts{{FromNs: 1000, Packets: 100},
						{FromNs: 3000, Packets: 497}},
				},
			},
		}, 2000, 3000},
		{"few", record.Traffic{
			Engine: "xdp",
			OneWay: []record.OneWay{{Counts: []record.DelayCounts{{FromNs: 2000, Packets: 40}}}},
		}, 2000, 0},
		{"none", record.Traffic{Engine: "xdp"}, 0, 0},
		{"another engine", record.Traffic{Engine: "native"}, 0, 0},
	}
	for _, tt := range tests {
		m := &Measured{Values: map[string]float64{}, Missing: map[string]string{}}
		m.addOneWay(&tt.traffic)
		if m.Values[oneWayP50] != tt.p50 || m.Values[oneWayP99] != tt.p99 {
			t.Errorf("%s: got %v, want p50 %v and p99 %v", tt.name, m.Values, tt.p50, tt.p99)
		}

		want := tt.p99 == 0 && tt.traffic.Engine == "xdp"
		if (m.Missing[oneWayP99] != "") != want {
			t.Errorf("%s: missing %v, want it among them: %v", tt.name, m.Missing, want)
		}
	}
}

func packetFlow(gap int64, delays ...record.DelayCount) record.Flow {
	return record.Flow{
		SenderNs:   1e9,
		ReceiverNs: 1e9,
		Packets: &record.Packets{
			Sent:       90,
			Unsent:     10,
			Received:   80,
			Lost:       10,
			Duplicates: new(int64),
			Reordered:  new(int64),
			Gaps: []record.Gap{{Length: 1, Gaps: 1, Packets: 1},
				{Length: gap, Gaps: 1, Packets: gap}},
			Delay: &record.DelayVariation{Counts: delays},
		},
	}
}

func TestPacketsOneByOne(t *testing.T) {
	tr := &record.Traffic{
		Load: record.Load{Protocol: "udp"},
		Flows: []record.Flow{
			packetFlow(9, record.DelayCount{AboveNs: 0, Packets: 197}, record.DelayCount{
				AboveNs: 640,
				Packets: 1,
			}),
			packetFlow(4, record.DelayCount{AboveNs: 64, Packets: 1}, record.DelayCount{
				AboveNs: 9000,
				Packets: 1,
			})},
	}
	m := NewMeasured()
	m.addPackets(tr)
	for name, want := range map[string]float64{LossRatio: .2, UnsentRatio: .1, longestGap: 9,
		delayVariation: 64, duplicates: 0, Reordered: 0} {
		if got, ok := m.Values[name]; !ok || got != want {
			t.Errorf("%s: got %v (%v), want %v", name, got, ok, want)
		}
	}
}

func TestPacketsCountedByLength(t *testing.T) {
	f := packetFlow(1)
	f.Packets.Duplicates = nil
	f.Packets.Reordered = nil
	f.Packets.Gaps = nil
	f.Packets.Delay = nil
	m := NewMeasured()
	m.addPackets(&record.Traffic{Load: record.Load{Protocol: "udp"}, Flows: []record.Flow{f}})
	for _, name := range []string{duplicates, Reordered, delayVariation, longestGap} {
		if v, ok := m.Values[name]; ok || m.Missing[name] == "" {
			t.Errorf("%s: got %v, want none and a reason", name, v)
		}
	}

	if m.Values[LossRatio] != .2 {
		t.Errorf("loss: got %v, want .2", m.Values[LossRatio])
	}
}

// What the kernel's ticks add to the time in which TCP had data is no share of the window; more would be one.
func TestBusyTimeWithoutTicks(t *testing.T) {
	for busy, want := range map[int64]float64{9e8: .9, 1e9: 1, 1004e6: 1, 1010e6: 1, 1500e6: 1.5} {
		m := NewMeasured()
		m.addTCP(&record.Traffic{
			Load: record.Load{Protocol: "tcp"},
			Flows: []record.Flow{{
				SenderNs: 1e9,
				TCP:      &record.TCP{BusyNs: busy},
			}},
		}, record.Window{})
		got := m.Values[BusyRatio]
		if got != want {
			t.Errorf("%d ns of a second: got %v, want %v", busy, got, want)
		}
	}
}

// TestTCPThatIsHardlyBusy: busy for less than a jiffy is no time, and known; an engine without chronographs
// knows nothing.
func TestTCPThatIsHardlyBusy(t *testing.T) {
	table := record.NewTable("busy_ns")
	table.Append(1, 0)
	for name, series := range map[string]*record.Table{"kernel": table, "none": nil} {
		m := NewMeasured()
		m.addTCP(&record.Traffic{
			Load: record.Load{Protocol: "tcp"},
			Flows: []record.Flow{{
				SenderNs: 1e9,
				TCP:      &record.TCP{Series: series},
			}},
		}, record.Window{})
		_, known := m.Values[BusyRatio]
		if known != (series != nil) {
			t.Errorf("%s: known %v", name, known)
		}
	}
}

// TestRoundTripOfTheWindow leaves out what TCP_INFO said before and after it.
func TestRoundTripOfTheWindow(t *testing.T) {
	table := record.NewTable("rtt_ns")
	for at, rtt := range []float64{90e6, 80e6, 20e6, math.NaN(), 22e6, 24e6, 70e6} {
		table.Append(int64(at), rtt)
	}

	m := NewMeasured()
	m.addTCP(&record.Traffic{
		Load: record.Load{Protocol: "tcp"},
		Flows: []record.Flow{{
			SenderNs: 1e9,
			TCP:      &record.TCP{Series: table},
		}},
	}, record.Window{Start: 2, End: 5})
	got := m.Values[RTTTCP]
	if got != 22e6 {
		t.Errorf("got %v ns, want the median of 20, 22 and 24 ms", got)
	}
}

// TestUncounted: what an engine does not count, or counts at one end only, is missing with a reason.
func TestUncounted(t *testing.T) {
	f := packetFlow(1)
	f.Packets.Unsent, f.Packets.UnsentUnknown = 0, true
	m := NewMeasured()
	tr := &record.Traffic{
		Engine: "iperf3",
		Load:   record.Load{Protocol: "udp"},
		Flows:  []record.Flow{f},
		Ends:   map[string]record.EndUsage{"near": {UserNs: 5e8}},
	}
	m.addPackets(tr)
	m.addEngine(tr)
	for _, name := range []string{UnsentRatio, EngineCPU} {
		if v, ok := m.Values[name]; ok || m.Missing[name] == "" {
			t.Errorf("%s: got %v for %q, want none and a reason", name, v, m.Missing[name])
		}
	}

	want := 10. / 90
	if m.Values[LossRatio] != want {
		t.Errorf("loss: got %v, want %v", m.Values[LossRatio], want)
	}

	tr = &record.Traffic{
		Engine: "iperf3",
		Load:   record.Load{Protocol: "tcp"},
		Flows: []record.Flow{
			{SenderNs: 1e9, TCP: &record.TCP{Retransmits: new(int64(3))}}, {SenderNs: 1e9, TCP: &record.TCP{}}},
	}
	m = NewMeasured()
	m.addTCP(tr, record.Window{})
	if v, ok := m.Values[Retransmits]; ok || m.Missing[Retransmits] == "" {
		t.Errorf("retransmits that one of two senders counts: got %v, want none and a reason", v)
	}
}
