package analysis

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

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
	p50 := c.Metrics["rtt_loaded_p50_ns"]
	p99 := c.Metrics["rtt_loaded_p99_ns"]
	if p50.Interval != statistics.IntervalRange || p50.N != 4 || len(p50.Values) != 4 {
		t.Errorf("p50 %+v, want the range of four", p50)
	}

	if p99.Interval != statistics.IntervalPooled || p99.N != 4 || p99.Low > p99.Median ||
		p99.High < p99.Median ||
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

// An idle measurement of the path serves all cells on it, block by block.
func TestIdleOfThePath(t *testing.T) {
	run, trials := quickRun(3)
	d := Derive(run, trials)
	one := cellOf(t, d, quickFactors())
	four := cellOf(t, d, quickFactors("streams", "4"))
	diff := cmp.Diff(one.Metrics["rtt_idle_p50_ns"], four.Metrics["rtt_idle_p50_ns"])
	if diff != "" {
		t.Errorf("cells of one path differ in idle latency:\n%s", diff)
	}

	nat := cellOf(t, d, quickFactors("nat", "masquerade"))
	if cmp.Equal(one.Metrics["rtt_idle_p50_ns"].Values, nat.Metrics["rtt_idle_p50_ns"].Values) {
		t.Error("cells of two paths share their idle latency")
	}

	both := cellOf(t, d, quickFactors("direction", "both"))
	if both.Metrics[metrics.RTTAdded].N != 3 {
		t.Errorf("added latency %+v, want three blocks", both.Metrics[metrics.RTTAdded])
	}
}
