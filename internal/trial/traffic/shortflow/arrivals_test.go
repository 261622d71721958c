package shortflow

import (
	"math"
	"slices"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Three threads together begin flows at the rate that was asked for.
func TestArrivalsOfSeveralThreads(t *testing.T) {
	const begin, rate, seconds = int64(5e9), 7000.0, 10
	for _, spacing := range []string{record.Isochronous, record.Exponential} {
		load := record.Load{ConnectionRate: rate, Spacing: spacing, Tag: "x"}
		var all []int64
		for thread := range 3 {
			d := newArrivals(load, thread, 3)
			for d.begin(begin); d.next < begin+seconds*1e9; d.advance() {
				all = append(all, d.next)
			}
		}

		slices.Sort(all)
		want := rate * seconds
		squares := 0.0
		for i, at := range all[1:] {
			gap := float64(at-all[i]) * rate / 1e9 // 1 in the mean
			squares += (gap - 1) * (gap - 1)
		}

		deviation := math.Sqrt(squares / float64(len(all)))
		if spacing == record.Isochronous {
			if float64(len(all)) != want || deviation > 1e-4 || all[0] != begin {
				t.Errorf("even: %d from %d on, gaps deviate by %v, want %v, evenly", len(all), all[0],
					deviation, want)
			}
			continue
		}

		// A Poisson process: counts deviate by their root, gaps by their mean.
		if math.Abs(float64(len(all))-want) > 4*math.Sqrt(want) || math.Abs(deviation-1) > .03 {
			t.Errorf("exponential: %d, gaps deviate by %v, want %v and 1", len(all), deviation, want)
		}
	}

	if newArrivals(record.Load{}, 0, 1) != nil {
		t.Error("without a rate there are no arrivals")
	}
}
