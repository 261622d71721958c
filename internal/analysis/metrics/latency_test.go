package metrics

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

func TestSpacingError(t *testing.T) {
	if _, ok := spacingP99(&record.Latency{Late: []int64{5}}); ok {
		t.Error("one probe has no gap")
	}

	l := &record.Latency{}
	for i := range 1001 {
		l.Late = append(l.Late, int64(1000*(i%2)))
	}

	if got, ok := spacingP99(l); !ok || got != 1000 {
		t.Errorf("got %v, %v, want 1000", got, ok)
	}

	for i := range l.Late {
		l.Late[i] = 7777 // always late by the same: the gaps are right
	}

	if got, _ := spacingP99(l); got != 0 {
		t.Errorf("got %v, want 0", got)
	}
}

func probes(rtt ...int64) *record.Latency { return &record.Latency{Stamps: "kernel", RTT: rtt} }

func TestAnsweredAndLost(t *testing.T) {
	l := probes(30, -1, 10, 20, -1)
	diff := cmp.Diff([]float64{10, 20, 30}, Answered(l))
	if diff != "" {
		t.Errorf("answered (-want +got)\n%s", diff)
	}

	m := NewMeasured()
	m.addLatency(&record.Trial{Idle: l, Loaded: probes()})
	if got := m.Values[ProbeLossIdle]; got != .4 {
		t.Errorf("lost %v, want 0.4", got)
	}

	if got, ok := m.Values[ProbeLoss]; ok {
		t.Errorf("nothing sent, lost %v, want no value", got)
	}
}

func TestBufferbloat(t *testing.T) {
	for ms, want := range map[float64]string{-1: "A+", 4.9: "A+", 5: "A", 29: "A", 30: "B", 60: "C", 200: "D",
		399: "D", 400: "F"} {
		got := Bufferbloat(ms * 1e6)
		if got != want {
			t.Errorf("%v ms: %s, want %s", ms, got, want)
		}
	}
}
