package analysis

import (
	"math"
	"slices"
	"strings"
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

func TestTrimmedMean(t *testing.T) {
	var values []float64
	for i := range 100 {
		values = append(values, float64(100-i))
	}
	if got, ok := trimmedMean(values, rpmTrim); !ok || got != 48 { // of 1…95
		t.Errorf("got %v, want 48", got)
	}
	if got, ok := trimmedMean([]float64{7}, rpmTrim); !ok || got != 7 {
		t.Errorf("of one: got %v, want it", got)
	}
}

func TestResponsivenessBands(t *testing.T) {
	for rpm, want := range map[float64]string{0: "poor", 299: "poor", 300: "fair", 999: "fair", 1000: "good",
		5999: "good", 6000: "excellent"} {
		if got := ResponsivenessBand(rpm); got != want {
			t.Errorf("%v: %s, want %s", rpm, got, want)
		}
	}
}

// Up, down and both of one path stand in one line, with the grade of the mean of up and down.
func TestUnderLoad(t *testing.T) {
	s := newSynthetic(5)
	up := quickFactors("engine", "responsiveness")
	down, both := quickFactors("engine", "responsiveness", "direction", "down"), quickFactors("engine",
		"responsiveness", "direction", "both")
	udp := quickFactors("protocol", "udp")
	run := syntheticRun(up, down, both, udp)
	var trials []record.Trial
	for block := 1; block <= 3; block++ {
		trials = append(trials, s.idle(up, block, 10*block))
		for i, f := range []record.Factors{up, down, both, udp} {
			x := s.trial(f, block, 10*block+i+1, 1e9)
			switch i {
			case 0:
				x.Traffic.Responsiveness = asked(x.Window, 10, 30, 50)
			case 1:
				x.Loaded = s.latency(x.Window, 80e6, 1e6)
				x.Traffic.Responsiveness = asked(x.Window, 80, 80, 400)
			case 2:
				x.Traffic.Responsiveness = asked(x.Window, -1, -1, -1)
			}
			trials = append(trials, x)
		}
	}
	d := Derive(run, trials)
	if len(d.UnderLoad) != 1 || len(d.UnderLoad[0].Ways) != 3 {
		t.Fatalf("got %+v, want one path with three directions", d.UnderLoad)
	}
	l := d.UnderLoad[0]
	if w := l.Ways["up"]; w.Grade != "A+" || w.RPM == nil || math.Abs(*w.RPM-2100) > 1 || w.Band != "good" ||
		w.Confidence != ConfidenceHigh {
		t.Errorf("up: %+v, want A+ and 2100, good, high", w)
	}
	if w := l.Ways["down"]; w.Grade != "C" || w.RPM == nil || math.Abs(*w.RPM-450) > 1 || w.Band != "fair" {
		t.Errorf("down: %+v, want C and 450, fair", w)
	}
	if w := l.Ways["both"]; w.RPM != nil || w.Band != "" || w.Why == "" {
		t.Errorf("both: %+v, want no figure, and why", w)
	}
	if math.Abs(l.AddedNs-41e6) > 1e6 || l.Grade != "B" {
		t.Errorf("overall %v ns, %s; want the mean of 2 ms and 80 ms, B", l.AddedNs, l.Grade)
	}
	if !slices.ContainsFunc(d.Summary, func(s string) bool {
		return strings.HasPrefix(s, "Responsiveness under load") &&
			strings.Contains(s, "up 2100 RPM (good, confidence high); down 450 RPM (fair")
	}) {
		t.Errorf("the summary does not say it: %q", d.Summary)
	}
	if got := cellOf(t, d, up).Metrics[responsiveness]; got.N != 3 || math.Abs(got.Median-2100) > 1 {
		t.Errorf("cell: %+v, want 2100 of three trials", got)
	}
}

func TestConfidence(t *testing.T) {
	s := newSynthetic(8)
	f := quickFactors("engine", "responsiveness")
	steady := s.trial(f, 1, 1, 1e9)
	steady.Traffic.Responsiveness = asked(steady.Window, 10, 10, 10)
	if got := rpmConfidence(&steady); got != ConfidenceHigh {
		t.Errorf("steady: %s, want high", got)
	}
	r := steady.Traffic.Responsiveness
	for i := range r.Loaded[80:] {
		r.Loaded[80+i] = 200e6 // a queue that fills in the last two seconds
	}
	if got := rpmConfidence(&steady); got != ConfidenceMedium {
		t.Errorf("unsettled: %s, want medium", got)
	}
	s.seconds = 3
	short := s.trial(f, 1, 1, 1e9)
	short.Traffic.Responsiveness = asked(short.Window, 10, 10, 10)
	if got := rpmConfidence(&short); got != ConfidenceLow {
		t.Errorf("three seconds: %s, want low", got)
	}
}
