package analysis

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// soakRun has windows of five minutes; rate and used are those of each.
func soakRun(windows int, rate, used func(i int) float64) (record.Run, []record.Trial) {
	f := record.Factors{"topology": "forward", "protocol": "tcp", "streams": "4", "ip": "4",
		"direction": "up", "tunnel": "none"}
	const window = 5 * 60 * int64(1e9)
	m := record.Method{
		Soak:     time.Duration(windows) * 5 * time.Minute,
		Duration: 5 * time.Minute,
		Runs:     windows,
	}
	run := record.Run{
		RunHead: record.RunHead{ID: "r", Status: record.RunDone},
		Design:  designOf(f),
	}
	run.Design.Method = m
	inLab(&run, "local")
	var trials []record.Trial
	for i := range windows {
		memory := record.NewTable("total_bytes", "available_bytes")
		for _, at := range []int64{0, window / 2, window} {
			memory.Append(at, 8e9, 8e9-used(i))
		}

		bytes := int64(rate(i) / 8 * 300)
		trials = append(trials, record.Trial{
			Row: record.Row{
				Assignment: record.Assignment{
					Block:   i + 1,
					Index:   i + 1,
					Kind:    record.RowLoad,
					Factors: f,
				},
				ID: "b" + string(rune('a'+i)),
			},
			TrialHead: record.TrialHead{ID: "x", Started: time.Unix(int64(i)*300, 0)},
			Attempt:   1,
			Status:    record.TrialOK,
			Ended:     window,
			Window:    record.Window{End: window},
			Nodes: map[string]record.NodeData{"host": {Samples: []record.Samples{{
				Probe: "memory",
				Table: memory,
			}}}},
			Traffic: &record.Traffic{
				Load: record.Load{Protocol: "tcp"},
				Flows: []record.Flow{{
					Direction:     "up",
					ReceivedBytes: bytes,
					SentBytes:     bytes,
					ReceiverNs:    window,
					SenderNs:      window,
				}},
			},
		})
	}

	return run, trials
}

func TestSoakTellsDriftAndLeaks(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	noise := func() float64 { return 1 + .005*r.NormFloat64() }
	flat := func(int) float64 { return 1e9 * noise() }
	steady := func(int) float64 { return 2e9 + 1e5*r.NormFloat64() }
	for name, c := range map[string]struct {
		rate, used  func(int) float64
		drift, leak bool
	}{
		"healthy": {flat, steady, false, false},
		"slower": {func(i int) float64 { return 1e9 * (1 - .002*float64(i)) * noise() }, steady,
			true, false},
		"leaking":            {flat, func(i int) float64 { return 2e9 + 4e6*float64(i) }, false, true},
		"giving memory back": {flat, func(i int) float64 { return 2e9 - 4e6*float64(i) }, false, false},
		"a few bytes":        {flat, func(i int) float64 { return 2e9 + 1e4*float64(i) }, false, false},
	} {
		run, trials := soakRun(24, c.rate, c.used)
		d := Derive(run, trials)
		if len(d.Soaks) != 1 {
			t.Fatalf("%s: got %d soaks", name, len(d.Soaks))
		}

		s := d.Soaks[0]
		if s.Windows != 24 || math.Abs(s.Hours-2) > .01 || s.Throttled != 0 {
			t.Errorf("%s: got %+v, want 24 windows in two hours", name, s)
		}

		got := map[string]bool{}
		for _, trend := range s.Trends {
			got[trend.Kind] = got[trend.Kind] || trend.Real
		}

		if got[TrendDrift] != c.drift || got[TrendLeak] != c.leak {
			t.Errorf("%s: got %+v, want drift %v and leak %v", name, s.Trends, c.drift, c.leak)
		}

		if !strings.Contains(strings.Join(s.Missing, "\n"), metrics.Label(metrics.ConntrackUsed)) {
			t.Errorf("%s: missing: got %v, want that tracked connections were not watched", name, s.Missing)
		}
	}

	run, trials := soakRun(3, flat, steady)
	if s := Derive(run, trials).Soaks[0]; len(s.Trends) != 0 || len(s.Missing) == 0 {
		t.Errorf("three windows: got %+v, want no trend and the reason", s)
	}

	run.Design.Method.Soak = 0
	if d := Derive(run, trials); len(d.Soaks) != 0 {
		t.Error("a plan without a soak has one")
	}
}

// Kendall's test keeps its level on values without a trend, and the slope does not move with an outlier.
func TestKendallAndTheilSen(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	alarms := 0
	for range 4000 {
		y := make([]float64, 12)
		for i := range y {
			y[i] = r.NormFloat64()
		}

		if statistics.Kendall(y) < .05 {
			alarms++
		}
	}

	share := float64(alarms) / 4000
	if share > .06 || share < .03 {
		t.Errorf("false alarms at 5 %%: got %.3f", share)
	}

	if got := statistics.Kendall([]float64{1, 1, 1, 1, 1, 1}); got != 1 {
		t.Errorf("constant: got p = %v, want 1", got)
	}

	x := []float64{0, 1, 2, 3, 4, 5}
	y := []float64{0, 2, 4, 1000, 8, 10}
	if got := statistics.TheilSen(x, y); got != 2 {
		t.Errorf("slope with an outlier: got %v, want 2", got)
	}
}

// TestSoakDoesNotSayWhatNobodySaw: without a source of heat no window was found to be held back by none.
func TestSoakDoesNotSayWhatNobodySaw(t *testing.T) {
	flat := func(int) float64 { return 1e9 }
	run, trials := soakRun(6, flat, flat)
	s := Derive(run, trials).Soaks[0]
	if s.Throttled != 0 || s.Unwatched != 6 || !strings.Contains(s.UnwatchedWhy, "thermal") {
		t.Errorf("got %+v, want six windows without a thermal source", s)
	}
}

// TestValidSaysWhatWasNotLookedAt: a trial names the checks that it gave no means for, and the run counts
// them.
func TestValidSaysWhatWasNotLookedAt(t *testing.T) {
	f := quickFactors()
	s := newSynthetic(3)
	seen := s.trial(f, 1, 1, 1e9)
	blind := s.trial(f, 2, 2, 1e9)
	seen.Nodes["client"], seen.Nodes["server"] = seen.Nodes["router"], seen.Nodes["router"]
	blind.Path, blind.Nodes = nil, nil
	d := Derive(syntheticRun(f), []record.Trial{seen, blind})
	has := func(i int, kind string) bool {
		return slices.ContainsFunc(d.Trials[i].Unchecked, func(u evidence.Unchecked) bool {
			return u.Kind == kind && u.Text != ""
		})
	}
	for _, kind := range []string{evidence.ReasonNotInTunnel, evidence.ReasonWrongMTU,
		evidence.ReasonThrottled, evidence.ReasonBackgroundLoad, evidence.ReasonSamplerStalled,
		evidence.ReasonKernelLog, evidence.ReasonLinkFlap} {
		if !has(1, kind) {
			t.Errorf("%s of a trial that nothing watched: got none among %v", kind, d.Trials[1].Unchecked)
		}
	}

	for _, kind := range []string{evidence.ReasonThrottled, evidence.ReasonBackgroundLoad,
		evidence.ReasonLinkFlap, evidence.ReasonWrongMTU} {
		if has(0, kind) {
			t.Errorf("%s of a watched trial: %v", kind, d.Trials[0].Unchecked)
		}
	}

	i := slices.IndexFunc(d.Caveats, func(c record.Caveat) bool { return c.Kind == "unchecked" })
	if i < 0 || !strings.Contains(d.Caveats[i].Text, "it is not known in 1 of 2 trials whether "+
		"a link went down (nothing watched") ||
		!strings.Contains(d.Caveats[i].Text, "in no trial is it known whether more arrived than") {
		t.Errorf("caveats %v, want what could not be checked, counted", d.Caveats)
	}
}

// TestLooksAtEachNode: of two machines that carry a path, what one of them shows says nothing of the other.
func TestLooksAtEachNode(t *testing.T) {
	flat := func(int) float64 { return 1e9 }
	run, trials := soakRun(6, flat, flat)
	inLab(&run, record.LabPair)
	for i := range trials {
		near := newSynthetic(uint64(i)).nodes(trials[i].Window)["host"]
		near.Samples = append(near.Samples, record.Samples{
			Probe: "kernellog",
			Table: record.NewTable("lines"),
		})
		trials[i].Nodes = map[string]record.NodeData{"client": near, "server": {Samples: []record.Samples{
			{Probe: "kernellog", Unavailable: "withheld by the peer"}}}}
	}

	d := Derive(run, trials)
	for kind, want := range map[string]string{
		evidence.ReasonKernelLog:      "on server: withheld by the peer",
		evidence.ReasonThrottled:      "on server: probe thermal did not run",
		evidence.ReasonBackgroundLoad: "on server: probe foreign did not run",
	} {
		if !slices.Contains(d.Trials[0].Unchecked, evidence.Unchecked{Kind: kind, Text: want}) {
			t.Errorf("%s: got %v, want %q", kind, d.Trials[0].Unchecked, want)
		}
	}

	k := d.Soaks[0]
	if k.Unwatched != 6 || !strings.Contains(k.UnwatchedWhy, "server") {
		t.Errorf("heat: got %d windows not watched (%s), want 6 for the server", k.Unwatched, k.UnwatchedWhy)
	}
}

// TestShortWindowsAreSaid: a window that is too short for a check was not checked.
func TestShortWindowsAreSaid(t *testing.T) {
	for seconds, want := range map[int64][]string{2: nil, 1: {evidence.ReasonDrift}} {
		f := quickFactors()
		s := newSynthetic(3)
		s.seconds = seconds
		d := Derive(syntheticRun(f), []record.Trial{s.trial(f, 1, 1, 1e9)})
		var got []string
		for _, u := range d.Trials[0].Unchecked {
			if strings.HasPrefix(u.Text, "the window is too short") {
				got = append(got, u.Kind)
			}
		}

		if !slices.Equal(got, want) {
			t.Errorf("%d s: got %v, want %v", seconds, got, want)
		}
	}
}
