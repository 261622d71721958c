package main

import (
	"io"
	"math"
	"testing"

	"github.com/chokepoint-lab/chokepoint/bench/rig"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

func TestQuantile(t *testing.T) {
	delays := []record.OneWay{{Counts: []record.DelayCounts{{FromNs: 3200, Packets: 50},
		{FromNs: 6400, Packets: 49}, {FromNs: 64000, Packets: 1}}}}
	for q, want := range map[float64]float64{0.5: 3300, 0.51: 6600, 0.99: 6600, 1: 66000} {
		got := quantile(delays, q)
		if got != want {
			t.Errorf("quantile %v: got %v, want %v", q, got, want)
		}
	}

	if got := quantile(nil, 0.5); !math.IsNaN(got) {
		t.Errorf("of nothing: got %v, want NaN", got)
	}
}

func TestWrongArgumentsAreRefused(t *testing.T) {
	for _, args := range [][]string{{"-pairs", "5"}, {"-nonesuch"}, {"more"}, {"-trafficgen", "x"}} {
		if err := run(t.Context(), args, io.Discard, io.Discard); err != rig.ErrUsage {
			t.Errorf("%v: got %v, want wrong flags", args, err)
		}
	}
}
