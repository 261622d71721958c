package metrics

import (
	"math"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// asked are requests every 100 ms of a window, each of which takes ms.
func asked(w record.Window, connect, exchange, loaded float64) *record.Responsiveness {
	r := &record.Responsiveness{}
	for at := w.Start; at < w.End; at += 1e8 {
		r.ForeignAt, r.LoadedAt = append(r.ForeignAt, at), append(r.LoadedAt, at+1)
		r.Connect, r.Exchange = append(r.Connect, int64(connect*1e6)), append(r.Exchange, int64(exchange*1e6))
		r.Loaded = append(r.Loaded, int64(loaded*1e6))
	}
	return r
}

func TestRoundTripsPerMinute(t *testing.T) {
	w := record.Window{Start: 0, End: 10e9}
	r := asked(w, 10, 30, 50)
	foreign, loaded, ok := roundTrips(r, math.MinInt64, math.MaxInt64)
	if !ok || math.Abs(foreign-3000) > 1e-6 || math.Abs(loaded-1200) > 1e-6 {
		t.Errorf("got %v and %v, want 60000/20 = 3000 and 60000/50 = 1200", foreign, loaded)
	}

	// The slowest twentieth does not count, not even if it never came back.
	for i := range 5 {
		r.Loaded[i] = -1
	}

	if _, loaded, ok = roundTrips(r, math.MinInt64, math.MaxInt64); !ok || math.Abs(loaded-1200) > 1e-6 {
		t.Errorf("5 of 100 unanswered: got %v, %v, want 1200", loaded, ok)
	}

	r.Loaded[5] = -1
	if _, _, ok = roundTrips(r, math.MinInt64, math.MaxInt64); ok {
		t.Error("6 of 100 unanswered: got a figure, want none")
	}

	if _, _, ok = roundTrips(&record.Responsiveness{}, math.MinInt64, math.MaxInt64); ok {
		t.Error("no request: got a figure")
	}
}

func TestResponsivenessBands(t *testing.T) {
	for rpm, want := range map[float64]string{0: "poor", 299: "poor", 300: "fair", 999: "fair", 1000: "good",
		5999: "good", 6000: "excellent"} {
		got := ResponsivenessBand(rpm)
		if got != want {
			t.Errorf("%v: %s, want %s", rpm, got, want)
		}
	}
}
