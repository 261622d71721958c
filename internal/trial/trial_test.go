package trial_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// TestPhaseWindowIsTheWindow: the phases of a load are cut at the edges of the timeline, whenever the
// engine and the latency probe come back.
func TestPhaseWindowIsTheWindow(t *testing.T) {
	r := rig(t, "name: x\nmethod: {runs: 1}\nmatrix: {streams: 1}\nmeasure: {latency_idle: off, "+
		"latency_loaded: true, verify: false}\n")
	execute(t, r)
	for _, tr := range r.Trials {
		i := slices.IndexFunc(tr.Phases, func(p record.Phase) bool { return p.Name == record.PhaseWindow })
		if i < 1 {
			t.Fatalf("trial %s (%s): got phases %+v, want a window after the warm-up", tr.ID, tr.Status,
				tr.Phases)
		}

		if got, want := tr.Phases[i], (record.Phase{
			Name:  record.PhaseWindow,
			Start: tr.Window.Start,
			End:   tr.Window.End,
		}); got != want {
			t.Errorf("trial %s: got %+v, want %+v", tr.ID, got, want)
		}

		if got := tr.Phases[i-1]; got.Name != record.PhaseWarmup || got.End != tr.Window.Start {
			t.Errorf("trial %s: got %+v before the window, want the warm-up until its start, %d", tr.ID, got,
				tr.Window.Start)
		}
	}

	if len(r.Trials) != 1 {
		t.Errorf("got %d trials, want 1", len(r.Trials))
	}
}

// TestLateCountsAreTakenAgain: a trial whose counts an end read half a window late has no number, and is
// tried again at once; twice, if that is no better.
func TestLateCountsAreTakenAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		late   []time.Duration // of the loads, in turn
		status []string
	}{
		"in time":       {nil, []string{record.TrialOK}},
		"a little late": {[]time.Duration{time.Millisecond}, []string{record.TrialOK}},
		"once":          {[]time.Duration{time.Hour}, []string{record.TrialFailed, record.TrialOK}},
		"each time": {[]time.Duration{time.Hour, time.Hour, time.Hour}, []string{record.TrialFailed,
			record.TrialFailed, record.TrialFailed}},
	} {
		t.Run(name, func(t *testing.T) {
			r := rig(t, "name: x\nmethod: {runs: 1}\nmatrix: {streams: 1}\nmeasure: {latency_idle: off, "+
				"latency_loaded: false, verify: false}\n")
			late := tc.late
			r.Labs.Engine.Late = func(record.Load) (by time.Duration) {
				if len(late) > 0 {
					by = late[0]
					late = late[1:]
				}
				return by
			}
			execute(t, r)
			var status []string
			for i, tr := range r.Trials {
				status = append(status, tr.Status)
				if tr.Attempt != i+1 || tr.Row.ID != r.Trials[0].Row.ID {
					t.Errorf("trial %s: got attempt %d of %s, want attempt %d of one row", tr.ID, tr.Attempt,
						tr.Row.ID, i+1)
				}

				f := tr.Failure
				if f != nil && (f.Phase != record.PhaseWindow || f.Hint == "" ||
					!strings.Contains(f.Error, "the far end read its counts 1h0m0s late")) {
					t.Errorf("trial %s: got %+v, want the late end, with a hint", tr.ID, f)
				}
			}

			if !slices.Equal(status, tc.status) {
				t.Errorf("got trials %v, want %v", status, tc.status)
			}
		})
	}
}

// TestATrialBeginsWithMemoryForFragments: what the one before has left of packets that will never be whole
// is waited for.
func TestATrialBeginsWithMemoryForFragments(t *testing.T) {
	r := rig(t, "name: x\nmethod: {runs: 2}\nmatrix: {streams: 1}\nmeasure: {latency_idle: off, "+
		"latency_loaded: false, verify: false}\n")
	loads := 0
	r.Labs.Engine.Late = func(record.Load) time.Duration {
		if loads++; loads == 1 {
			r.Labs.Fakes["forward"].Fragments = []float64{1.1, 0.5, 0.1, 0.9}
		}
		return 0
	}
	execute(t, r)
	if len(r.Trials) != 2 {
		t.Fatalf("got %d trials, want 2", len(r.Trials))
	}

	left := r.Labs.Fakes["forward"].Fragments
	if !slices.Equal(left, []float64{0.9}) {
		t.Errorf("got %v left to see, want 0.9 alone: a tenth is little enough", left)
	}

	p := r.Trials[1].Phases[0]
	if p.Name != record.PhaseSetup ||
		time.Duration(p.End-p.Start) < 2*65*time.Second/500 {
		t.Errorf("got phase %+v, want a set-up in which two looks were waited for", p)
	}
}

// TestEveryLoadIsVerifiedOnRequest: the content of datagrams, too; and of none where the plan does not ask.
func TestEveryLoadIsVerifiedOnRequest(t *testing.T) {
	for verify, want := range map[string][2]int{"all": {2, 3}, "true": {0, 1}, "false": {0, 0}} {
		r := rig(t, "name: x\nmethod: {runs: 1}\nmatrix: {protocol: [tcp, udp]}\nmeasure: {latency_idle: "+
			"off, latency_loaded: false, verify: "+verify+"}\n")
		execute(t, r)
		var loads, all int
		for _, tr := range r.Trials {
			if tr.Traffic == nil || !tr.Traffic.Load.Verify {
				continue
			}

			all++
			if tr.Row.Kind == record.RowLoad && tr.Traffic.Flows[0].Verified > 0 {
				loads++
			}
		}

		got := [2]int{loads, all}
		if got != want {
			t.Errorf("verify: %s: got %v trials of loads and of all kinds that check the content, want %v",
				verify, got, want)
		}
	}
}
