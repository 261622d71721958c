package metrics

import (
	"math"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/cipher"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// clocked are samples of one probe over two seconds.
func clocked(probe, column string, v ...float64) record.NodeData {
	table := record.NewTable(column)
	for i, x := range v {
		table.Append(int64(i)*1e9, x)
	}
	return record.NodeData{Samples: []record.Samples{{Probe: probe, Table: table}}}
}

func TestCipherMetrics(t *testing.T) {
	for _, tt := range []struct {
		name   string
		cipher record.Cipher
		node   record.NodeData
		want   map[string]float64
		source string
	}{
		{"told", record.Cipher{Block: 1420, Threads: 1, Rate: 1e9, LoopCycles: 6},
			clocked("cpufreq", "cpu0/frequency_hz", 2e9, 3e9, 2e9),
			map[string]float64{CipherRate: 8e9, CipherClock: 3e9, CyclesPerByte: 3}, cipher.ClockTold},
		{"estimated", record.Cipher{Threads: 1, Rate: 1e4, LoopCycles: 6},
			clocked("clock", "cpu0/loop_rate_best_hz", 4e8, 5e8, 4e8),
			map[string]float64{CipherOps: 1e4, CipherClock: 3e9, CyclesPerOp: 3e5}, cipher.ClockEstimated},
		{"many threads", record.Cipher{Block: 1420, Threads: 2, Rate: 2e9},
			clocked("cpufreq", "cpu0/frequency_hz", 3e9, 3e9, 3e9),
			map[string]float64{CipherRate: 16e9, CipherClock: 3e9}, cipher.ClockTold},
		{"a loop of unknown cycles", record.Cipher{Block: 1420, Threads: 1, Rate: 1e9},
			clocked("clock", "cpu0/loop_rate_best_hz", 4e8, 4e8, 4e8), map[string]float64{CipherRate: 8e9},
			cipher.ClockUnknown},
		{"no loop was timed", record.Cipher{Block: 1420, Threads: 1, Rate: 1e9, LoopCycles: 6},
			record.NodeData{}, map[string]float64{CipherRate: 8e9}, cipher.ClockUntimed},
	} {
		tt.cipher.Watched = "host"
		m := NewMeasured()
		m.addCipher(&record.Trial{
			Cipher: &tt.cipher,
			Window: record.Window{Start: 0, End: 2e9},
			Nodes:  map[string]record.NodeData{"host": tt.node},
		})
		for _, metric := range []string{CipherRate, CipherOps, CyclesPerByte, CyclesPerOp, CipherClock} {
			got := m.Values[metric]
			if math.Abs(got-tt.want[metric]) > 1e-6*got {
				t.Errorf("%s: %s is %g, want %g", tt.name, metric, got, tt.want[metric])
			}
		}

		if m.ClockFrom != tt.source || tt.want[CipherClock] == 0 &&
			!strings.Contains(m.Missing[CyclesPerByte], "not known") {
			t.Errorf("%s: the clock is %q (%v), want %q", tt.name, m.ClockFrom, m.Missing, tt.source)
		}
	}
}
