package analysis

import (
	"math"
	"slices"
	"testing"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// The histogram that other programs get has the exact percentiles to three digits, every probe in it or
// counted beside it, and can be read back.
func TestDistributionIsTheProbes(t *testing.T) {
	rng := source(3)
	one := &record.Latency{Stamps: "kernel", Includes: "a", Spacing: record.Exponential, Probe: "icmp"}
	two := &record.Latency{Stamps: "user", Includes: "b", RTT: []int64{-1, -1, 0, 101e9}}
	var all []float64
	for range 20000 {
		ns := 20000 * math.Exp(rng.NormFloat64())
		one.RTT = append(one.RTT, int64(ns))
		all = append(all, math.Trunc(ns))
	}

	slices.Sort(all)
	d, ok := distribution([]*record.Latency{one, two})
	if !ok || d.Sent != 20004 || d.Lost != 2 || d.Beyond != 2 || d.Probe != "icmp" ||
		d.Spacing != record.Exponential ||
		!slices.Equal(d.Stamps, []string{"kernel", "user"}) || !slices.Equal(d.Includes, []string{"a", "b"}) {
		t.Errorf("got %+v", d)
	}

	h, err := hdrhistogram.Decode([]byte(d.HDR))
	if err != nil {
		t.Fatal(err)
	}

	if h.TotalCount() != 20000 {
		t.Errorf("%d probes in the histogram, want 20000", h.TotalCount())
	}

	for _, q := range metrics.Percentiles {
		want := statistics.QuantileSorted(all, q.Level)
		got := float64(h.ValueAtQuantile(100 * q.Level))
		if math.Abs(got/want-1) > .001 {
			t.Errorf("%s: the histogram says %.0f, the probes %.0f", q.Name, got, want)
		}
	}

	if _, ok := distribution(nil); ok {
		t.Error("nothing has a distribution")
	}
}

// Each cell has the histogram of its loaded probes, and of the idle ones of its path.
func TestCellsHaveDistributions(t *testing.T) {
	run, trials := quickRun(3)
	c := cellOf(t, Derive(run, trials), quickFactors("streams", "4"))
	loaded, idle := c.Latency["loaded"], c.Latency["idle"]
	if loaded.Sent != 3000 || idle.Sent != 3000 ||
		idle.HDR == loaded.HDR {
		t.Errorf("%d loaded and %d idle probes, want 3000 of each, and two histograms", loaded.Sent,
			idle.Sent)
	}
}
