package method

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// The example search of RFC 9971: four goals, six points in time, one load of a million frames per second.
var exampleGoals = []record.Goal{
	{Name: "RFC2544", FinalDuration: 60 * time.Second, DurationSum: 60 * time.Second},
	{Name: "TST009", FinalDuration: 60 * time.Second, DurationSum: 120 * time.Second, ExceedRatio: .5},
	{
		Name:          "1s final",
		FinalDuration: time.Second,
		DurationSum:   120 * time.Second,
		LossRatio:     .005,
		ExceedRatio:   .5,
	},
	{
		Name:          "20% exceed",
		FinalDuration: 60 * time.Second,
		DurationSum:   60 * time.Second,
		LossRatio:     .005,
		ExceedRatio:   .2,
	},
}

const exampleLoad = 1e6

func some(n, seconds int, loss float64) []Trial {
	out := make([]Trial, n)
	for i := range out {
		out[i] = Trial{
			TrialInput: record.TrialInput{Load: exampleLoad, Duration: time.Duration(seconds) * time.Second},
			Loss:       loss,
		}
	}
	return out
}

// exampleTrials returns those known at a point, from 1 to 6.
func exampleTrials(point int) []Trial {
	var out []Trial
	for _, added := range [][]Trial{
		some(59, 1, 0), some(1, 1, .01), some(59, 1, .01), some(1, 1, 0), some(1, 60, .001), some(1, 60, 0),
	}[:point] {
		out = append(out, added...)
	}
	return out
}

func TestLoadsOfTheExampleSearchAreClassified(t *testing.T) {
	type row struct {
		High, Full, Whole, Pessimistic float64 // effective sums, seconds
		Optimistic, PessimisticRatio   float64 // percent, three decimals
		Bound                          Bound
	}
	for point, goals := range [][]row{
		{{0, 0, 60, 60, 0, 100, Undecided}, {0, 0, 120, 120, 0, 100, Undecided}, {0, 59, 120, 61, 0, 50.833,
			Undecided}, {0, 0, 60, 60, 0, 100, Undecided}},
		{{1, 1, 60, 60, 1.667, 100, Upper}, {0, 0, 120, 120, 0, 100, Undecided}, {1, 60, 120, 61, .833,
			50.833, Undecided}, {0, 0, 60, 60, 0, 100, Undecided}},
		{{60, 60, 60, 60, 100, 100, Upper}, {1, 1, 120, 120, .833, 100, Undecided}, {60, 119, 120, 61, 50,
			50.833, Undecided}, {45.25, 45.25, 60, 60, 75.417, 100, Upper}},
		{{60, 60, 60, 60, 100, 100, Upper}, {0, 0, 120, 120, 0, 100, Undecided}, {60, 120, 120, 60, 50, 50,
			Lower}, {45, 45, 60, 60, 75, 100, Upper}},
		{{120, 120, 120, 120, 100, 100, Upper}, {60, 60, 120, 120, 50, 100, Undecided},
			{60, 180, 180, 60, 33.333, 33.333, Lower}, {45, 105, 105, 45, 42.857, 42.857, Lower}},
		{{120, 180, 180, 120, 66.667, 66.667, Upper}, {60, 120, 120, 60, 50, 50, Lower},
			{60, 240, 240, 60, 25, 25, Lower}, {45, 165, 165, 45, 27.273, 27.273, Lower}},
	} {
		for i, want := range goals {
			g := exampleGoals[i]
			if point >= 4 && i == 3 {
				// The text's table says lower bound here, though the exceed ratios beside it, 43 % and 27
				// %, are above the goal's 20 %. The normative code says upper bound, and so do we.
				want.Bound = Upper
			}

			e := estimate(g, sumsOf(g, exampleTrials(point+1)))
			got := row{e.EffectiveHigh, e.EffectiveFull, e.EffectiveWhole, e.PessimisticHigh,
				percent(e.Optimistic), percent(e.Pessimistic), e.Bound}
			diff := cmp.Diff(want, got)
			if diff != "" {
				t.Errorf("point %d, goal %s (-want +got):\n%s", point+1, g.Name, diff)
			}
		}
	}
}

func percent(x float64) float64 { return math.Round(x*1e5) / 1e3 }

func TestConditionalThroughputOfTheExampleSearch(t *testing.T) {
	for i, want := range map[int]float64{1: 1e6, 2: 1e6, 3: 999e3} {
		got, ok := throughput(exampleGoals[i], exampleLoad, exampleTrials(6))
		if !ok || math.Abs(got-want) > 1e-6 {
			t.Errorf("goal %s: got %v, %v, want %v", exampleGoals[i].Name, got, ok, want)
		}
	}
}

// A load that was decided early lacks trials up to the goal's duration sum; the code counts their time as
// lost, the text beside it forgets it.
func TestConditionalThroughputCountsMissingTimeAsLost(t *testing.T) {
	g := record.Goal{
		Name:          "g",
		FinalDuration: time.Second,
		DurationSum:   4 * time.Second,
		LossRatio:     .01,
		ExceedRatio:   .5,
	}
	trials := append(some(1, 1, 0), some(1, 1, .01)...)
	if got := classify(g, trials); got != Lower {
		t.Fatalf("got %s, want lower", got)
	}

	if got, ok := throughput(g, 1e6, trials); !ok || math.Abs(got-.99e6) > 1e-6 {
		t.Errorf("got %v, %v, want 990000: the worse of the two decides", got, ok)
	}

	if got, ok := throughput(g, 1e6, trials[:1]); !ok || got != 0 {
		t.Errorf("got %v, %v, want 0: half of the time is missing", got, ok)
	}

	if _, ok := throughput(exampleGoals[0], 1e6, trials); ok {
		t.Error("got a throughput without a full-length trial")
	}
}

func TestTrialsThatBreakTheDelayObjectiveAreHighLoss(t *testing.T) {
	g := record.Goal{
		Name:          "g",
		FinalDuration: time.Second,
		DurationSum:   time.Second,
		ExceedRatio:   .5,
		MaxDelay:      5 * time.Millisecond,
	}
	trial := Trial{
		TrialInput: record.TrialInput{Load: 1, Duration: time.Second},
		HasDelay:   true,
		Delay:      5 * time.Millisecond,
	}
	for name, c := range map[string]struct {
		change func(*Trial)
		want   Bound
	}{
		"at the objective": {func(*Trial) {}, Lower},
		"above it":         {func(t *Trial) { t.Delay++ }, Upper},
		"unknown":          {func(t *Trial) { t.HasDelay = false }, Upper},
		"lossy":            {func(t *Trial) { t.Loss = .1 }, Upper},
	} {
		changed := trial
		c.change(&changed)
		got := classify(g, []Trial{changed})
		if got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
}

func TestEffectiveDurationsAreSummed(t *testing.T) {
	g := record.Goal{Name: "g", FinalDuration: time.Second, DurationSum: 3 * time.Second, ExceedRatio: .5}
	trials := some(1, 1, 0)
	if got := classify(g, trials); got != Undecided {
		t.Errorf("got %s of one second in three, want undecided", got)
	}

	trials[0].Effective = 1500 * time.Millisecond
	if got := classify(g, trials); got != Lower {
		t.Errorf("got %s of one and a half in three, want lower", got)
	}
}
