package main

import (
	"io"
	"math"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

func TestRatioAndItsInterval(t *testing.T) {
	got := ratioOf([]float64{2, 4, 6, 8, 10, 60}, []float64{2, 2, 2, 2, 2, 2})
	if want := (interval{3.5, 1, 30}); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	for n, want := range map[int]int{6: 0, 8: 0, 9: 1, 12: 2, 20: 5} {
		if got := rank(n); got != want {
			t.Errorf("rank of %d: got %d, want %d", n, got, want)
		}
	}
}

func TestQuantile(t *testing.T) {
	ways := []record.OneWay{{Counts: []record.DelayCounts{{FromNs: 3200, Packets: 50},
		{FromNs: 6400, Packets: 49}, {FromNs: 64000, Packets: 1}}}}
	for q, want := range map[float64]float64{0.5: 3300, 0.51: 6600, 0.99: 6600, 1: 66000} {
		if got := quantile(ways, q); got != want {
			t.Errorf("quantile %v: got %v, want %v", q, got, want)
		}
	}
	if got := quantile(nil, 0.5); !math.IsNaN(got) {
		t.Errorf("of nothing: got %v, want NaN", got)
	}
}

func TestWrongArgumentsAreRefused(t *testing.T) {
	for _, args := range [][]string{{"-pairs", "5"}, {"-nonesuch"}, {"more"}, {"-trafficgen", "x"}} {
		if code := run(args, io.Discard, io.Discard); code != 2 {
			t.Errorf("%v: exit code %d, want 2", args, code)
		}
	}
}
