package latency

import (
	"math"
	"slices"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

func TestIsochronousSchedule(t *testing.T) {
	s := NewSchedule(record.Window{Begin: 1000, Start: 1250, End: 1450}, 100, "", 1)
	var got []int64
	for i := range s.N {
		got = append(got, s.at(i))
	}

	want := []int64{1050, 1150, 1250, 1350}
	if s.First != 2 || !slices.Equal(got, want) {
		t.Errorf("due at %v with %d before the window, want %v with 2", got, s.First, want)
	}
}

// The gaps of the exponential schedule have their mean as standard deviation, and no value that they
// cluster at.
func TestExponentialSchedule(t *testing.T) {
	const interval = 1_000_000
	w := record.Window{Begin: 5e9, Start: 6e9, End: 26e9}
	s := NewSchedule(w, interval, record.Exponential, 7)
	mean := 0.0
	squares := 0.0
	short := 0
	for i := 1; i < s.N; i++ {
		gap := float64(s.at(i) - s.at(i-1))
		if gap < 0 {
			t.Fatalf("probe %d is due before the one before it", i)
		}

		if gap < interval/2 {
			short++
		}

		mean += gap
		squares += gap * gap
	}

	n := float64(s.N - 1)
	mean /= n
	deviation := math.Sqrt(squares/n - mean*mean)
	if math.Abs(mean/interval-1) > .03 ||
		math.Abs(deviation/interval-1) > .05 {
		t.Errorf("gaps have mean %.0f and deviation %.0f, want %d of both", mean, deviation, interval)
	}

	// 1 - e^-½ of an exponential distribution lies below half of its mean.
	share := float64(short) / n
	if math.Abs(share-.393) > .02 {
		t.Errorf("%.3f of the gaps are below half of their mean, want 0.393", share)
	}

	if s.at(0) < w.Begin || s.at(s.N-1) >= w.End || s.at(s.First) < w.Start || s.at(s.First-1) >= w.Start {
		t.Errorf("schedule from %d to %d with %d before the window, want it in %+v", s.at(0), s.at(s.N-1),
			s.First, w)
	}

	again := NewSchedule(w, interval, record.Exponential, 7)
	other := NewSchedule(w, interval,
		record.Exponential, 8)
	if !slices.Equal(s.Times, again.Times) || slices.Equal(s.Times, other.Times) {
		t.Error("want the same times from the same seed, and others from another")
	}
}
