package main

import (
	"math"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

func TestRatioAgrees(t *testing.T) {
	nan := math.NaN()
	tests := []struct {
		name      string
		low, high float64
		want      bool
	}{
		{"equal", 1, 1, true},
		{"at the edges", 1 - tolerance, 1 + tolerance, true},
		{"too low", .96, 1, false},
		{"too high", 1, 1.04, false},
		{"no low", nan, 1, false},
		{"no high", 1, nan, false},
		{"none", nan, nan, false},
	}
	for _, tt := range tests {
		if got := (ratio{low: tt.low, high: tt.high}).agrees(); got != tt.want {
			t.Errorf("%s: got %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestGoodput(t *testing.T) {
	tests := []struct {
		name  string
		flows []record.Flow
		want  float64 // 0: an error
	}{
		{"two streams", []record.Flow{{ReceivedBytes: 1000, ReceiverNs: 1e9},
			{ReceivedBytes: 500, ReceiverNs: 5e8}}, 16000},
		{"one of two starved", []record.Flow{{ReceivedBytes: 1000, ReceiverNs: 1e9}, {ReceiverNs: 1e9}},
			8000},
		{"no time and no byte", []record.Flow{{}}, 0},
		{"no time", []record.Flow{{ReceivedBytes: 1000}}, 0},
		{"no byte", []record.Flow{{ReceiverNs: 1e9}}, 0},
		{"no stream", nil, 0},
	}
	for _, tt := range tests {
		got, err := goodput(&record.Traffic{Flows: tt.flows})
		if got != tt.want || (err != nil) != (tt.want == 0) {
			t.Errorf("%s: got %v (%v), want %v", tt.name, got, err, tt.want)
		}
	}
}
