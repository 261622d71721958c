package analysis

import (
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// A run of about a thousand trials of ten seconds, sampled ten times a second.
func BenchmarkDeriveThousandTrials(b *testing.B) {
	run, trials := quickRun(100)
	b.ReportMetric(float64(len(trials)), "trials")
	b.ResetTimer()
	for range b.N {
		Derive(run, trials)
	}
}

func BenchmarkMeasure(b *testing.B) {
	run := syntheticRun()
	trial := newSynthetic(1).trial(quickFactors("streams", "4"), 1, 1, 1e9)
	p := metrics.PlaceOf(&run, trial.Row.Factors)
	b.ReportAllocs()
	for range b.N {
		metrics.Measure(&trial, p)
	}
}

func BenchmarkChart(b *testing.B) {
	trial := newSynthetic(1).trial(quickFactors("streams", "4"), 1, 1, 1e9)
	rtts := map[string][]float64{"loaded": metrics.Answered(trial.Loaded)}
	b.ReportAllocs()
	for range b.N {
		chart(&trial, rtts, chartPoints)
	}
}

func BenchmarkEvenness(b *testing.B) {
	trial := newSynthetic(1).trial(quickFactors("streams", "4"), 1, 1, 1e9)
	curves, _ := metrics.Received(trial.Traffic)
	var w record.Window = trial.Window
	b.ReportAllocs()
	for range b.N {
		statistics.WindowEvenness(curves, w.Start, w.End)
	}
}
