package plan_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/plan"
	"github.com/google/go-cmp/cmp"
)

// fitPlan takes, per block, 4 × (8 + 1.5 + 0.5) s of load and one idle measurement of 2 s: 42 s.
const fitPlan = `
method: {duration: 8s, warmup: 1500ms, cooldown: 500ms, idle: 2s, runs: 10}
matrix: {streams: [1, 2, 4, 8], ip: 4}
measure: {verify: false}
`

func TestEstimate(t *testing.T) {
	for _, tc := range []struct {
		name     string
		set      string
		overhead time.Duration
		want     time.Duration
	}{
		{"plain", "name=x", 0, 420 * time.Second},
		{"overhead of five rows per block", "name=x", time.Second, 470 * time.Second},
		{"idle before each trial", "measure.latency_idle=trial", 0, 480 * time.Second},
		{"no idle", "measure.latency_idle=off", 0, 400 * time.Second},
		{"verify once per path", "measure.verify=true", time.Second, 471500 * time.Millisecond},
		{"one run", "method.runs=1", 0, 42 * time.Second},
	} {
		got := read(t, fitPlan, tc.set).Estimate(tc.overhead)
		if got != tc.want {
			t.Errorf("%s: got %v, want %v", tc.name, got, tc.want)
		}
	}
}

func TestFit(t *testing.T) {
	for _, tc := range []struct {
		name     string
		budget   time.Duration
		overhead time.Duration
		runs     int
		streams  []string
		cuts     []string
		skipped  []string
	}{
		{"all fits", 420 * time.Second, 0, 10, []string{"1", "2", "4", "8"}, nil, nil},
		{"fewer repetitions", 419 * time.Second, 0, 9, []string{"1", "2", "4", "8"},
			[]string{"9 repetitions instead of 10"}, nil},
		{"overhead counts", 420 * time.Second, time.Second, 8, []string{"1", "2", "4", "8"},
			[]string{"8 repetitions instead of 10"}, nil},
		{"fewest repetitions", 252 * time.Second, 0, 6, []string{"1", "2", "4", "8"},
			[]string{"6 repetitions instead of 10"}, nil},
		{"shorter windows", 251 * time.Second, 0, 6, []string{"1", "2", "4", "8"},
			[]string{"6 repetitions instead of 10", "windows of 7.9s instead of 8s"}, nil},
		{"shortest windows", 132 * time.Second, 0, 6, []string{"1", "2", "4", "8"},
			[]string{"6 repetitions instead of 10", "windows of 3s instead of 8s"}, nil},
		{"last cell goes", 131 * time.Second, 0, 6, []string{"1", "2", "4"},
			[]string{"6 repetitions instead of 10", "windows of 4.6s instead of 8s"}, []string{"8"}},
		{"one cell stays", 42 * time.Second, 0, 6, []string{"1"}, []string{"6 repetitions instead of 10",
			"windows of 3s instead of 8s"}, []string{"2", "4", "8"}},
	} {
		p := read(t, fitPlan)
		if err := p.Fit(tc.budget, tc.overhead); err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}

		if diff := cmp.Diff(tc.cuts, p.Design.Cuts); diff != "" {
			t.Errorf("%s: cuts (-want +got):\n%s", tc.name, diff)
		}

		var skipped []string
		for _, sk := range p.Skipped() {
			skipped = append(skipped, sk.Factors["streams"])
			if sk.Reason != "cut by --for" {
				t.Errorf("%s: skipped: got reason %q", tc.name, sk.Reason)
			}
		}

		if diff := cmp.Diff(tc.skipped, skipped); diff != "" {
			t.Errorf("%s: streams of the skipped cells (-want +got):\n%s", tc.name, diff)
		}

		var streams []string
		for _, c := range p.Cells() {
			streams = append(streams, c["streams"])
		}

		if diff := cmp.Diff(tc.streams, streams); diff != "" || p.Design.Method.Runs != tc.runs {
			t.Errorf("%s: %d runs, want %d; streams (-want +got):\n%s", tc.name, p.Design.Method.Runs,
				tc.runs, diff)
		}

		got := p.Estimate(tc.overhead)
		if got > tc.budget {
			t.Errorf("%s: takes %v, more than %v", tc.name, got, tc.budget)
		}
	}
}

func TestFitAdaptive(t *testing.T) {
	p := read(t, "method: {duration: 10s, warmup: 0s, cooldown: 0s, adaptive: {min: 6, max: 20}}\nmatrix: "+
		"{ip: [4, 6]}\n"+
		"measure: {verify: false, latency_idle: off}\n")
	before := *p.Design.Method.Adaptive
	fitted := p.WithSeed(1)
	if err := fitted.Fit(35*time.Second, 0); err != nil {
		t.Fatal(err)
	}

	m := fitted.Design.Method
	if m.Runs != 6 || m.Adaptive.Max != 6 || len(fitted.Cells()) != 1 ||
		len(fitted.Skipped()) != 1 {
		t.Errorf("got runs %d, adaptive %+v, %d cells, skipped %v", m.Runs, *m.Adaptive, len(fitted.Cells()),
			fitted.Skipped())
	}

	if *p.Design.Method.Adaptive != before || len(p.Cells()) != 2 || len(p.Skipped()) != 0 {
		t.Error("Fit changed the plan that WithSeed copied")
	}
}

// The largest plan is cut in no time, and its length does not overflow.
func TestFitLargest(t *testing.T) {
	p := read(t, "method: {runs: 5, duration: 15m, warmup: 1m, cooldown: 1h, idle: 1m}\nmeasure: "+
		"{latency_idle: trial}\n"+
		"matrix:\n  protocol: udp\n"+manyLevels("streams", 100)+manyLevels("packet_size", 100))
	got, want := p.Estimate(time.Second), 50000*77*time.Minute
	if got < want {
		t.Errorf("estimate: got %v, want at least %v", got, want)
	}

	start := time.Now()
	if err := p.Fit(7*time.Hour, time.Second); err != nil {
		t.Fatal(err)
	}

	took := time.Since(start)
	if len(p.Cells()) != 1 || took > 10*time.Second {
		t.Errorf("got %d cells after %v", len(p.Cells()), took)
	}
}

// A search's windows are its own.
func TestFitSearch(t *testing.T) {
	p := read(t, "method: {runs: 1, search: quick}\nmatrix: {protocol: udp, packet_size: [64, 128, 256]}\n")
	if err := p.Fit(p.Estimate(0)/2, 0); err != nil {
		t.Fatal(err)
	}

	if len(p.Cells()) == 3 || p.Design.Method.Duration != 10*time.Second || p.Design.Cuts != nil {
		t.Errorf("got %d cells with windows of %v: %v", len(p.Cells()), p.Design.Method.Duration,
			p.Design.Cuts)
	}
}

// A plan with fewer repetitions than give an interval keeps all it has.
func TestFitFewRuns(t *testing.T) {
	p := read(t, fitPlan, "method.runs=4")
	if err := p.Fit(50*time.Second, 0); err != nil {
		t.Fatal(err)
	}

	got := p.Design.Method.Runs
	if got != 4 || len(p.Cells()) != 2 {
		t.Errorf("got %d runs of %d cells, want 4 of 2", got, len(p.Cells()))
	}
}

func TestFitTooSmall(t *testing.T) {
	p := read(t, fitPlan)
	err := p.Fit(35*time.Second, 0)
	if err == nil {
		t.Fatal("got no error")
	}

	got, want := err.Error(), "one cell with 6 repetitions and windows of 3s takes 42s and does not "+
		"fit into 35s"
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}

	hint := err.(*plan.Error).Hint()
	if hint == "" {
		t.Error("got no hint")
	}

	m := p.Design.Method
	if m.Duration != 8*time.Second || m.Runs != 10 || len(p.Cells()) != 4 ||
		p.Design.Cuts != nil || len(p.Skipped()) > 0 {
		t.Error("a failed Fit changed the plan")
	}
}

// TestFitSaysWhatIsMissed: windows that no longer show what they were long enough for say so, with a budget
// that keeps it.
func TestFitSaysWhatIsMissed(t *testing.T) {
	const heat, bursts = "heat that throttles a CPU", "bursts that a shaper or policer allows"
	for _, tc := range []struct {
		name     string
		duration string
		budget   time.Duration
		missed   []string
	}{
		{"a minute, to seconds", "60s", 5 * time.Minute, []string{heat, bursts}},
		{"a minute, to 15 s", "60s", 8 * time.Minute, []string{heat}},
		{"a minute, to 50 s", "60s", 22 * time.Minute, nil},
		{"20 s, to seconds", "20s", 4 * time.Minute, []string{bursts}},
		{"8 s", "8s", 200 * time.Second, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := read(t, fitPlan, "method.duration="+tc.duration)
			if err := p.Fit(tc.budget, time.Second); err != nil {
				t.Fatal(err)
			}

			cuts := strings.Join(p.Design.Cuts, "; ")
			if !strings.Contains(cuts, "windows of ") {
				t.Fatalf("cuts: %q, want shorter windows", cuts)
			}

			for _, what := range []string{heat, bursts} {
				got := strings.Contains(cuts, what)
				if got != slices.Contains(tc.missed, what) {
					t.Errorf("cuts: %q, names %q: %v", cuts, what, got)
				}
			}

			if len(tc.missed) == 0 {
				return
			}

			_, named, _ := strings.Cut(cuts, "--for ")
			budget, err := time.ParseDuration(strings.Fields(named)[0])
			if err != nil {
				t.Fatal(err)
			}

			p = read(t, fitPlan, "method.duration="+tc.duration)
			if err := p.Fit(budget, time.Second); err != nil {
				t.Fatal(err)
			}

			if cuts := strings.Join(p.Design.Cuts, "; "); strings.Contains(cuts, "miss") {
				t.Errorf("with the budget that it names, %s: %q", budget, cuts)
			}
		})
	}
}
