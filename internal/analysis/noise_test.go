package analysis

import (
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
)

// TestAddedLatencyInTheNoise: what the measurement cannot tell from nothing is none measurable in words, and
// never a negative time; what it can tell stands there.
func TestAddedLatencyInTheNoise(t *testing.T) {
	p50 := metrics.RTT("idle", metrics.Percentiles[0])
	p90 := metrics.RTT("idle", metrics.Percentiles[1])
	loaded := metrics.RTT("loaded", metrics.Percentiles[0])
	for _, tt := range []struct {
		name             string
		idle, tail, adds []float64
		noise            bool
	}{
		{"negative", []float64{90e3}, []float64{120e3}, []float64{-711}, true},
		{"negative of several", []float64{90e3, 91e3, 89e3}, []float64{95e3}, []float64{-900, -711, -300}, true},
		{"around nothing", []float64{90e3, 91e3, 89e3}, []float64{95e3}, []float64{-900, 4000, 9000}, true},
		{"one trial, less than the idle path varies", []float64{90e3}, []float64{120e3}, []float64{20e3}, true},
		{"trials differ by more when idle", []float64{1e6, 9e6, 5e6}, []float64{6e6}, []float64{2e6, 3e6, 3e6},
			true},
		{"a queue", []float64{90e3}, []float64{120e3}, []float64{50e6}, false},
		{"a small queue, seen in all", []float64{90e3, 91e3, 89e3}, []float64{95e3}, []float64{6e3, 8e3, 9e3},
			false},
	} {
		c := &Cell{Cell: metrics.Cell{
			Label: "1 stream",
			Metrics: map[string]statistics.Value{
				p50: statistics.Summarise(tt.idle), p90: statistics.Summarise(tt.tail),
				loaded:           statistics.Summarise([]float64{100e3}),
				metrics.RTTAdded: statistics.Summarise(tt.adds)},
		}}
		got := c.AddedInNoise()
		if got != tt.noise {
			t.Errorf("%s: in the noise is %v", tt.name, got)
		}

		words := strings.Join(latencyWords(&Document{Cells: []Cell{*c}}), "")
		none := strings.Contains(words, "no added latency is measurable")
		if none != tt.noise || strings.Contains(words, "-") {
			t.Errorf("%s: %s", tt.name, words)
		}
	}
}

// TestTheFastestIsAMedian: no interval around what is called the most reaches above it.
func TestTheFastestIsAMedian(t *testing.T) {
	run, trials := quickRun(3)
	said := strings.Join(Derive(run, trials).Summary, "\n")
	if strings.Contains(said, "at most") || !strings.Contains(said,
		"Without a tunnel the fastest cell carried a median of ") {
		t.Errorf("the summary is\n%s", said)
	}
}
