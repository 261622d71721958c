package analysis

import (
	"math/rand/v2"
	"testing"

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
	p := placeOf(&run, trial.Row.Factors)
	b.ReportAllocs()
	for range b.N {
		measure(&trial, p)
	}
}

func BenchmarkChart(b *testing.B) {
	trial := newSynthetic(1).trial(quickFactors("streams", "4"), 1, 1, 1e9)
	rtts := map[string][]float64{"loaded": answered(trial.Loaded)}
	b.ReportAllocs()
	for range b.N {
		chart(&trial, rtts)
	}
}

func BenchmarkFamilyTest(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	family := make([]map[int]float64, 40)
	for i := range family {
		family[i] = map[int]float64{}
		for k := range enumerable {
			family[i][k] = rng.NormFloat64()
		}
	}
	for range b.N {
		FamilyTest(family)
	}
}

func BenchmarkMannWhitney(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	x, y := make([]float64, 20), make([]float64, 20)
	for i := range x {
		x[i], y[i] = rng.NormFloat64(), rng.NormFloat64()
	}
	for range b.N {
		MannWhitney(x, y)
	}
}

func BenchmarkEvenness(b *testing.B) {
	trial := newSynthetic(1).trial(quickFactors("streams", "4"), 1, 1, 1e9)
	curves, _ := received(trial.Traffic)
	var w record.Window = trial.Window
	b.ReportAllocs()
	for range b.N {
		windowEvenness(curves, w.Start, w.End)
	}
}
