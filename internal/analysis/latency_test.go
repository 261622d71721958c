package analysis

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

func probes(rtt ...int64) *record.Latency { return &record.Latency{Stamps: "kernel", RTT: rtt} }

func TestAnsweredAndLost(t *testing.T) {
	l := probes(30, -1, 10, 20, -1)
	if diff := cmp.Diff([]float64{10, 20, 30}, answered(l)); diff != "" {
		t.Errorf("answered (-want +got)\n%s", diff)
	}
	if got := lostShare(l); got != .4 {
		t.Errorf("lost %v, want 0.4", got)
	}
	if got := lostShare(probes()); got != 0 {
		t.Errorf("nothing sent, lost %v", got)
	}
}

// Percentiles go only as far as the probes carry them.
func TestQuantilesAsFarAsCarried(t *testing.T) {
	for _, test := range []struct{ n, levels int }{{0, 0}, {1, 6}, {5, 6}, {6, 6}, {13, 7}, {36, 8}, {72, 9},
		{367, 9}, {368, 10}, {3688, 11}, {40000, 12}} {
		sorted := make([]float64, test.n)
		for i := range sorted {
			sorted[i] = float64(i)
		}
		got := quantiles(sorted)
		if len(got) != test.levels {
			t.Errorf("%d probes: %d levels, want %d", test.n, len(got), test.levels)
		}
		if len(got) > 0 && (got[0] != 0 || got[len(got)-1] >= float64(max(test.n, 1))) {
			t.Errorf("%d probes: quantiles %v", test.n, got)
		}
	}
}

func TestQuantileSorted(t *testing.T) {
	ten := []float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	for _, test := range []struct{ q, want float64 }{{0, 1}, {.1, 1}, {.11, 2}, {.5, 5}, {.9, 9}, {.91, 10},
		{1, 10}} {
		if got := quantileSorted(ten, test.q); got != test.want {
			t.Errorf("q=%v: %v, want %v", test.q, got, test.want)
		}
	}
	if got := quantileSorted(nil, .5); !math.IsNaN(got) {
		t.Errorf("of nothing: %v", got)
	}
}

func TestBufferbloat(t *testing.T) {
	for ms, want := range map[float64]string{-1: "A+", 4.9: "A+", 5: "A", 29: "A", 30: "B", 60: "C", 200: "D",
		399: "D", 400: "F"} {
		if got := Bufferbloat(ms * 1e6); got != want {
			t.Errorf("%v ms: %s, want %s", ms, got, want)
		}
	}
}

// Ten trials of a second each carry p99 only together.
func TestPooledPercentiles(t *testing.T) {
	f := quickFactors()
	s := newSynthetic(3)
	s.seconds = 2 // 200 probes each
	var trials []record.Trial
	for i := range 4 {
		trials = append(trials, s.trial(f, i+1, i+1, 1e9))
	}
	c := Derive(syntheticRun(f), trials).Cells[0]
	p50, p99 := c.Metrics["rtt_loaded_p50_ns"], c.Metrics["rtt_loaded_p99_ns"]
	if p50.Interval != IntervalRange || p50.N != 4 || len(p50.Values) != 4 {
		t.Errorf("p50 %+v, want the range of four", p50)
	}
	if p99.Interval != IntervalPooled || p99.N != 4 || p99.Low > p99.Median || p99.High < p99.Median ||
		p99.Low == p99.High {
		t.Errorf("p99 %+v, want it pooled with an interval", p99)
	}
	if why := c.Missing["rtt_loaded_p999_ns"]; why != "800 answered probes do not carry p999" {
		t.Errorf("p999 is missing because %q", why)
	}
	if why := c.Missing["rtt_idle_p50_ns"]; why != "the idle path was not measured" {
		t.Errorf("idle is missing because %q", why)
	}
}

// The interval of a pooled percentile covers it.
func TestQuantileRanksCoverage(t *testing.T) {
	for i, test := range []struct {
		n int
		q float64
	}{{36, .9}, {368, .99}, {1000, .99}, {100, .5}} {
		rng := source(uint64(500 + i))
		low, high := quantileRanks(test.n, test.q)
		truth, hit := test.q, 0
		const n = 2000
		for range n {
			below := 0
			for range test.n {
				if rng.Float64() <= truth {
					below++
				}
			}
			// The low-th value is at or below the quantile if at least low values are, and the high-th at
			// or above if fewer than high are.
			if below >= low && below < high {
				hit++
			}
		}
		if share := float64(hit) / n; share < .94 {
			t.Errorf("n=%d q=%v ranks %d…%d: coverage %.3f, want .95", test.n, test.q, low, high, share)
		}
	}
}

// An idle measurement of the path serves all cells on it, block by block.
func TestIdleOfThePath(t *testing.T) {
	run, trials := quickRun(3)
	d := Derive(run, trials)
	one, four := cellOf(t, d, quickFactors()), cellOf(t, d, quickFactors("streams", "4"))
	if diff := cmp.Diff(one.Metrics["rtt_idle_p50_ns"], four.Metrics["rtt_idle_p50_ns"]); diff != "" {
		t.Errorf("cells of one path differ in idle latency:\n%s", diff)
	}
	nat := cellOf(t, d, quickFactors("nat", "masquerade"))
	if cmp.Equal(one.Metrics["rtt_idle_p50_ns"].Values, nat.Metrics["rtt_idle_p50_ns"].Values) {
		t.Error("cells of two paths share their idle latency")
	}
	if both := cellOf(t, d, quickFactors("direction", "both")); both.Metrics[rttAdded].N != 3 {
		t.Errorf("added latency %+v, want three blocks", both.Metrics[rttAdded])
	}
}
