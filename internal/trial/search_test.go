package trial_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/labtest"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// searchPlan looks for the rate of packets of 500 bytes; the fake router carries capacity of them a second.
const (
	searchPlan = `
name: x
method: {runs: 1, seed: 1, search: {preset: quick, min: 5k, max: 500k%s}}
matrix: {protocol: udp, packet_size: 500}
measure: {latency_idle: block, latency_loaded: true, verify: false}
`
	capacity = 40e3
)

// searchRig shortens the trials of a search, so that it takes a second. edits are texts of the plan with
// what replaces each.
func searchRig(t *testing.T, more string, edits ...string) *fakeCampaign {
	t.Helper()
	r := rig(t, strings.NewReplacer(append(edits, "%s", more)...).Replace(searchPlan))
	shorten(r.Plan.Design.Method.Search)
	pps := func(load record.Load) float64 { return load.RateBps / 8 / float64(load.PacketSize-28) }
	r.Labs.Engine.Rate = func(load record.Load) float64 {
		if load.RateBps == 0 {
			t.Error("a trial of the search has no rate")
		}
		return pps(load) * 8 * (float64(load.PacketSize) + 1e-6)
	}
	r.Labs.Engine.Lose = func(load record.Load) float64 { return max(0, 1-capacity/pps(load)) }
	return r
}

// shorten has each trial of a search take 10 ms.
func shorten(s *record.Search) {
	s.Goals = slices.Clone(s.Goals)
	for i := range s.Goals {
		g := &s.Goals[i]
		g.FinalDuration = 10 * time.Millisecond
		g.InitialDuration = 10 * time.Millisecond
		g.DurationSum = 30 * time.Millisecond
	}

	s.Warmup = 10 * time.Millisecond
	s.CountPauses = false
}

func searchesOf(r *fakeCampaign, trials []record.Trial) []analysis.SearchView {
	return analysis.Derive(r.Campaign.Run, trials).Searches
}

// A search is made of normal trials, each stored, and its outcome is read from them.
func TestSearchIsDrivenAndReadAgain(t *testing.T) {
	r := searchRig(t, "")
	execute(t, r)
	var numbers []int
	for _, tr := range r.Trials {
		if tr.Row.Kind != record.RowLoad {
			continue
		}

		if tr.Search == nil || tr.Traffic == nil || len(tr.Nodes) == 0 ||
			tr.Window.Seconds() != tr.Search.Duration.Seconds() {
			t.Fatalf("trial %s: got search %+v and a window of %v s, want a normal trial of the search",
				tr.ID, tr.Search, tr.Window.Seconds())
		}

		numbers = append(numbers, tr.Search.Number)
	}

	for i, n := range numbers {
		if n != i+1 {
			t.Fatalf("numbers of trials: got %v, want them in order", numbers)
		}
	}

	doc := analysis.Derive(r.Campaign.Run, r.Trials)
	if len(doc.Searches) != 1 || !doc.Searches[0].Ended || doc.Searches[0].Trials != len(numbers) {
		t.Fatalf("searches: got %+v, want one that ended after %d trials", doc.Searches, len(numbers))
	}

	for _, got := range doc.Searches[0].Results {
		if got.Irregular != "" || *got.Lower > capacity*1.01 || *got.Upper < capacity*.98 {
			t.Errorf("goal %s: got %+v, want bounds about %v", got.Goal, got, capacity)
		}
	}

	cell := doc.Cells[0]
	if got := cell.Metrics["throughput_ndr_pps"]; math.Abs(got.Median/capacity-1) > .02 || got.N != 1 {
		t.Errorf("throughput_ndr_pps: got %+v, want about %v of one search", got, capacity)
	}

	if got := cell.Metrics["packet_rate_pps"]; math.Abs(got.Median/capacity-1) > .02 {
		t.Errorf("packet_rate_pps: got %+v, want that of a trial at the bound", got)
	}

	if cell.Runs != 1 || doc.Searching == nil || len(doc.Searching.Deviations) == 0 {
		t.Errorf("got %d runs and %+v, want one run and what it deviates in", cell.Runs, doc.Searching)
	}
}

// A search that was interrupted goes on with the trial that would have come.
func TestSearchResumesWhereItWas(t *testing.T) {
	whole := searchRig(t, "")
	execute(t, whole)
	first := searchRig(t, "")
	ctx, cancel := context.WithCancelCause(context.Background())
	stop := errors.New("interrupted")
	offers := 0
	first.Labs.Engine.Fail = func(context.Context, record.Load) error {
		if offers++; offers == 7 {
			cancel(stop)
			return context.Cause(ctx)
		}
		return nil
	}
	if err := first.Execute(ctx); !errors.Is(err, stop) {
		t.Fatalf("got %v, want the interruption", err)
	}

	s := searchesOf(first, first.Trials)
	if len(s) != 1 || s[0].Ended || s[0].Why == "" {
		t.Errorf("interrupted: got %+v, want a search that has not ended, with the reason", s)
	}

	second := searchRig(t, "")
	second.Done = first.Trials
	execute(t, second)
	loads := func(trials []record.Trial) (out []float64) {
		for _, tr := range trials {
			if tr.Search != nil {
				out = append(out, math.Round(tr.Search.Load))
			}
		}
		return out
	}
	got := loads(append(slices.Clone(first.Trials), second.Trials...))
	diff := cmp.Diff(loads(whole.Trials), got)
	if diff != "" {
		t.Errorf("loads (-of a search in one piece +of one in two):\n%s", diff)
	}

	third := searchRig(t, "")
	third.Done = append(slices.Clone(first.Trials), second.Trials...)
	execute(t, third)
	if len(third.Trials) != 0 {
		t.Errorf("got %d trials of a search that had ended, want none", len(third.Trials))
	}
}

// Failed trials have no result; the search repeats them, and gives up when three in a row fail.
func TestSearchSurvivesFailedTrials(t *testing.T) {
	r := searchRig(t, "")
	offers := 0
	r.Labs.Engine.Fail = func(context.Context, record.Load) error {
		if offers++; offers == 3 || offers == 9 || offers == 10 {
			return errors.New("bad luck")
		}
		return nil
	}
	execute(t, r)
	if s := searchesOf(r, r.Trials)[0]; !s.Ended || s.Failed != 3 || s.Results[0].Irregular != "" ||
		r.Outcome.Failed != 3 {
		t.Errorf("got %+v and outcome %+v, want an ended search with three failed trials", s, r.Outcome)
	}

	r = searchRig(t, "")
	offers = 0
	r.Labs.Engine.Fail = func(context.Context, record.Load) error {
		if offers++; offers > 5 {
			return errors.New("broken")
		}
		return nil
	}
	execute(t, r)
	s := searchesOf(r, r.Trials)[0]
	if s.Ended || s.Failed != 3 || !strings.Contains(s.Results[0].Irregular, "given up") {
		t.Errorf("got %+v, want a search that was given up", s)
	}
}

func TestSearchByAddedDelay(t *testing.T) {
	r := searchRig(t, "")
	goals := r.Plan.Design.Method.Search.Goals
	for i := range goals {
		goals[i].MaxDelay = time.Millisecond / 2
	}

	r.Plan.Design.Measure.ProbeInterval = 20 * time.Microsecond
	r.Prober = labtest.Prober{RTT: time.Millisecond}
	execute(t, r)
	doc := analysis.Derive(r.Campaign.Run, r.Trials)
	got := doc.Cells[0].Metrics["throughput_delay_pps"]
	if math.Abs(got.Median/capacity-1) > .02 {
		t.Errorf("added nothing: got %+v, want the capacity", got)
	}

	// An idle path that is said to be faster: now every load adds 1 ms.
	for i := range r.Trials {
		l := r.Trials[i].Idle
		if l != nil {
			for k := range l.RTT {
				l.RTT[k] = 1
			}
		}
	}

	s := searchesOf(r, r.Trials)[0]
	if s.Results[0].Irregular == "" || s.Results[0].Lower != nil {
		t.Errorf("added 1 ms at every load: got %+v, want no lower bound", s.Results[0])
	}
}

func TestFurtherTestsOfRFC2544Follow(t *testing.T) {
	t.Parallel()
	r := searchRig(t, ", latency: {duration: 200ms, repeats: 2}, frame_loss: {duration: 200ms}, "+
		"back_to_back: {duration: 100ms, repeats: 2}")
	s := r.Plan.Design.Method.Search
	s.Latency.Duration = 10 * time.Millisecond
	s.FrameLoss.Duration = 10 * time.Millisecond
	s.BackToBack.Duration = 10 * time.Millisecond
	execute(t, r)
	got := searchesOf(r, r.Trials)[0]
	if !got.Ended || len(got.Latency) != 4 || len(got.BackToBack) != 1 {
		t.Fatalf("got %+v, want all tests", got)
	}

	for _, l := range got.Latency {
		if l.P50 == nil || l.P50.N != 2 || math.Abs(l.Load/(*got.Results[0].Lower*l.Share)-1) > 1e-9 {
			t.Errorf("latency at %v: got %+v, want two repeats at that share of the found rate", l.Share, l)
		}
	}

	// 500 kpps is 12.5 times the capacity: no step comes down to it but the last.
	n := len(got.FrameLoss)
	if n != 10 || math.Abs(got.FrameLoss[0].Loss.Median-.92) > .01 ||
		math.Abs(got.FrameLoss[9].Loss.Median-.2) > .02 {
		t.Errorf("frame loss: got %+v, want ten steps from 92 %% to 20 %%", got.FrameLoss)
	}

	b := got.BackToBack[0]
	if b.Frames != nil || !b.Limited {
		t.Errorf("back-to-back: got %+v, want none of a router without a buffer", b)
	}
}

func TestSearchWithoutAGreatestLoadIsRefusedWithAHint(t *testing.T) {
	r := searchRig(t, "")
	r.Plan.Design.Method.Search.MaxPPS = 0
	execute(t, r)
	var failed []record.Trial
	for _, tr := range r.Trials {
		if tr.Status == record.TrialFailed {
			failed = append(failed, tr)
		}
	}

	if len(failed) != 1 || !strings.Contains(failed[0].Failure.Error, "no range") ||
		failed[0].Failure.Hint == "" {
		t.Errorf("got %+v, want one failed trial with a hint: no ceiling was measured", failed)
	}
}

// TCP is paced at the load; what the path cannot carry of it is its loss.
func TestSearchPacesTCP(t *testing.T) {
	r := rig(t, `
name: x
method: {runs: 1, seed: 1, search: {preset: smoke, max_added_delay: 5ms, min_rate: 10M, max_rate: 10G}}
matrix: {protocol: tcp, direction: both}
measure: {latency_idle: block, latency_loaded: true, verify: false, probe_interval: 2ms}
`)
	shorten(r.Plan.Design.Method.Search)
	r.Plan.Design.Measure.ProbeInterval = 20 * time.Microsecond
	const carries = 1e9 // bit/s in each direction
	r.Labs.Engine.Rate = func(load record.Load) float64 { return min(load.RateBps/2, carries) }
	execute(t, r)
	doc := analysis.Derive(r.Campaign.Run, r.Trials)
	if len(doc.Searches) != 1 || doc.Searches[0].Unit != record.UnitBits || doc.Searches[0].Interfaces != 2 {
		t.Fatalf("got %+v, want one search in bits of both directions", doc.Searches)
	}

	got := doc.Searches[0].Results[0]
	if got.Irregular != "" || *got.Lower > carries/.95*1.001 || *got.Upper < carries/.95*.999 ||
		*got.ThroughputBps != 2**got.Throughput {
		t.Errorf("got %+v, want bounds about %v of each direction", got, carries/.95)
	}

	v := doc.Cells[0].Metrics["throughput_delay_bps"]
	if math.Abs(v.Median/carries-1) > .03 {
		t.Errorf("throughput_delay_bps: got %+v, want about %v", v, carries)
	}
}
