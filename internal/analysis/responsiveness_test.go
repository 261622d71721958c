package analysis

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Up, down and both of one path stand in one line, with the grade of the mean of up and down.
func TestUnderLoad(t *testing.T) {
	s := newSynthetic(5)
	up := quickFactors("engine", "responsiveness")
	down := quickFactors("engine", "responsiveness", "direction", "down")
	both := quickFactors("engine",
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
	if len(d.UnderLoad) != 1 || len(d.UnderLoad[0].Directions) != 3 {
		t.Fatalf("got %+v, want one path with three directions", d.UnderLoad)
	}

	l := d.UnderLoad[0]
	if w := l.Directions["up"]; w.Grade != "A+" || w.RPM == nil || math.Abs(*w.RPM-2100) > 1 ||
		w.Band != "good" ||
		w.Confidence != metrics.ConfidenceHigh {
		t.Errorf("up: %+v, want A+ and 2100, good, high", w)
	}

	if w := l.Directions["down"]; w.Grade != "C" || w.RPM == nil || math.Abs(*w.RPM-450) > 1 ||
		w.Band != "fair" {
		t.Errorf("down: %+v, want C and 450, fair", w)
	}

	if w := l.Directions["both"]; w.RPM != nil || w.Band != "" || w.Why == "" {
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

	got := cellOf(t, d, up).Metrics[metrics.Responsiveness]
	if got.N != 3 || math.Abs(got.Median-2100) > 1 {
		t.Errorf("cell: %+v, want 2100 of three trials", got)
	}
}

func TestConfidence(t *testing.T) {
	s := newSynthetic(8)
	f := quickFactors("engine", "responsiveness")
	steady := s.trial(f, 1, 1, 1e9)
	steady.Traffic.Responsiveness = asked(steady.Window, 10, 10, 10)
	if got := metrics.RPMConfidence(&steady); got != metrics.ConfidenceHigh {
		t.Errorf("steady: %s, want high", got)
	}

	r := steady.Traffic.Responsiveness
	for i := range r.Loaded[80:] {
		r.Loaded[80+i] = 200e6 // a queue that fills in the last two seconds
	}

	if got := metrics.RPMConfidence(&steady); got != metrics.ConfidenceMedium {
		t.Errorf("unsettled: %s, want medium", got)
	}

	s.seconds = 3
	short := s.trial(f, 1, 1, 1e9)
	short.Traffic.Responsiveness = asked(short.Window, 10, 10, 10)
	if got := metrics.RPMConfidence(&short); got != metrics.ConfidenceLow {
		t.Errorf("three seconds: %s, want low", got)
	}
}

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
