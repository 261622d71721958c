package comparison

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
)

// world is a list of versions and a tester. Levels, drift and noise are logarithms.
type world struct {
	levels []float64                    // of each version
	noise  func(rng *rand.Rand) float64 // of a run
	drift  func(run int) float64        // of the tester, nil: none
}

// normalNoise has the standard deviation of 1 %.
func normalNoise(rng *rand.Rand) float64 { return .01 * rng.NormFloat64() }

// bisected holds the answer of a bisection in a simulated world.
type bisected struct {
	BisectStep
	Bisect
	middle, good int // runs after those of the ends
}

// bisect measures the ends and then what Next asks for. It returns nil if the ends do not differ.
func (w world) bisect(rng *rand.Rand, unusable ...int) *bisected {
	out := &bisected{Bisect: Bisect{Versions: len(w.levels), Unusable: map[int]string{}}}
	for _, v := range unusable {
		out.Unusable[v] = "its build exits with 1"
	}

	measure := func(version, block int) float64 {
		run := len(out.Runs)
		log := w.levels[version] + w.noise(rng)
		if w.drift != nil {
			log += w.drift(run)
		}

		x := 1e9 * math.Exp(log)
		at := time.Unix(int64(120*run), 0)
		out.Runs = append(out.Runs, VersionRun{Version: version, Block: block, At: at, Value: x})
		return x
	}
	v := Versions{Old: map[int]float64{}, New: map[int]float64{}}
	for block := 1; block <= 2*VersionBlocks; block++ {
		if block == VersionBlocks+1 && !v.Unrepeated() {
			return nil
		}

		for _, end := range rng.Perm(2) {
			value := measure(end*(len(w.levels)-1), block)
			[]map[int]float64{v.Old, v.New}[end][block] = value
		}
	}

	if OfVersions([][]Versions{{v}})[0][0].Verdict != statistics.Different {
		return nil
	}

	for block := 2*VersionBlocks + 1; ; block++ {
		out.BisectStep = out.Next()
		if out.Outcome != "" {
			return out
		}

		if out.Measure == 0 {
			out.good++
		} else {
			out.middle++
		}

		measure(out.Measure, block)
	}
}

// steps returns the levels of versions that fall at some of them.
func steps(versions int, by float64, at ...int) []float64 {
	out := make([]float64, versions)
	for v := range out {
		for _, k := range at {
			if v >= k {
				out[v] -= by
			}
		}
	}
	return out
}

// TestBisect simulates bisections with a noise of 1 % in each run. Shares are of those whose ends were found
// to differ, which upgrade's rule decides. A wrong culprit is a version without a step.
func TestBisect(t *testing.T) {
	one := func(by float64) func(*rand.Rand, int) world {
		return func(rng *rand.Rand, n int) world {
			return world{levels: steps(n, by, 1+rng.IntN(n-1)), noise: normalNoise}
		}
	}
	for _, tt := range []struct {
		name     string
		versions int
		times    int
		world    func(rng *rand.Rand, n int) world
		found    float64 // the smallest share of culprits found
		wrong    float64 // the largest share of wrong culprits
		middle   int     // the largest median of boots of versions between the ends; 0: any
		all      float64 // the largest mean of all boots after those of the ends; 0: any
		tester   float64 // the smallest share of answers that it is the tester
	}{
		{"16 versions", 16, 300, one(.03), .93, .06, 6, 7.5, 0},
		{"64 versions", 64, 200, one(.03), .93, .06, 8, 11, 0},
		{"a faster version", 16, 100, one(-.03), .90, .08, 6, 7.5, 0},
		{"a step of 10 %", 16, 100, one(.10), .98, .02, 4, 6, 0},
		{"the tester drifts by 0.1 % a boot", 16, 100, func(rng *rand.Rand, n int) world {
			w := one(.03)(rng, n)
			w.drift = func(run int) float64 { return -.001 * float64(run) }
			return w
		}, .2, .12, 0, 0, .4},
		{"the tester falls by the step", 16, 100, func(rng *rand.Rand, n int) world {
			w := one(.03)(rng, n)
			w.drift = func(run int) float64 { return -.03 * float64(min(1, run/(4*VersionBlocks+2))) }
			return w
		}, 0, .08, 0, 0, .8},
		{"two steps of half the size", 16, 100, func(rng *rand.Rand, n int) world {
			return world{levels: steps(n, .015, 1+rng.IntN(n-1), 1+rng.IntN(n-1)), noise: normalNoise}
		}, .2, .2, 0, 0, 0},
		{"worse, mended, worse again", 16, 100, func(rng *rand.Rand, n int) world {
			at := rng.Perm(n - 1)[:3]
			slices.Sort(at)
			levels := steps(n, .03, at[0]+1, at[2]+1)
			for v := at[1] + 1; v < n; v++ {
				levels[v] += .03
			}
			return world{levels: levels, noise: normalNoise}
		}, .85, .08, 0, 0, 0},
		{"two modes of a boot", 16, 100, func(rng *rand.Rand, n int) world {
			w := one(.06)(rng, n)
			w.noise = func(rng *rand.Rand) float64 {
				return normalNoise(rng) - .03*float64(min(1, max(0, rng.IntN(4)-2)))
			}
			return w
		}, .93, .05, 6, 7.5, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rng := source(uint64(tt.versions))
			outcomes := map[string]int{}
			var middle []float64
			ends, boots := 0, 0
			for range tt.times {
				w := tt.world(rng, tt.versions)
				got := w.bisect(rng)
				if got == nil {
					continue
				}

				ends++
				boots += got.middle + got.good
				middle = append(middle, float64(got.middle))
				what := got.Outcome
				if k := got.Last; what == BisectCulprit && (got.First != k || w.levels[k] == w.levels[k-1]) {
					what = "wrong"
				}

				outcomes[what]++
			}

			found := float64(outcomes[BisectCulprit]) / float64(ends)
			wrong := float64(outcomes["wrong"]) / float64(ends)
			median, mean := statistics.Median(middle), float64(boots)/float64(ends)
			t.Logf("%d of %d ends differ, median %g between, mean %.1f in all: %v", ends, tt.times, median,
				mean, outcomes)
			if float64(ends) < .7*float64(tt.times) {
				t.Errorf("ends differ in %d of %d", ends, tt.times)
			}

			if found < tt.found || wrong > tt.wrong {
				t.Errorf("found %.3f, wrong %.3f; want at least %g and at most %g", found, wrong, tt.found,
					tt.wrong)
			}

			if share := float64(outcomes[BisectTester]) / float64(ends); share < tt.tester {
				t.Errorf("it is the tester in %.3f, want at least %g", share, tt.tester)
			}

			if tt.middle > 0 && (median > float64(tt.middle) || mean > tt.all) {
				t.Errorf("boots: median %g between the ends, mean %.2f in all; want at most %d and %g",
					median, mean, tt.middle, tt.all)
			}
		})
	}
}

// TestBisectOfEqualEnds: of A/A tests at most one in a thousand has a culprit.
func TestBisectOfEqualEnds(t *testing.T) {
	rng := source(1)
	const times = 3000
	culprits := 0
	for range times {
		got := world{levels: make([]float64, 16), noise: normalNoise}.bisect(rng)
		if got != nil && got.Outcome == BisectCulprit {
			culprits++
		}
	}

	t.Logf("culprits of %d equal ends: %d", times, culprits)
	if culprits > times/1000 {
		t.Errorf("culprits of equal ends: got %d of %d", culprits, times)
	}
}

// TestBisectOutcomes: without noise that matters, each kind of world has its answer, and what cannot be
// measured is a suspect together with the version after it.
func TestBisectOutcomes(t *testing.T) {
	quiet := func(rng *rand.Rand) float64 { return .001 * rng.NormFloat64() }
	for _, tt := range []struct {
		name     string
		world    world
		unusable []int
		want     BisectStep
	}{
		{"one step", world{levels: steps(12, .05, 7)}, nil,
			BisectStep{Outcome: BisectCulprit, First: 7, Last: 7}},
		{"the first after the good end", world{levels: steps(12, .05, 1)}, nil,
			BisectStep{Outcome: BisectCulprit, First: 1, Last: 1}},
		{"the bad end", world{levels: steps(12, .05, 11)}, nil,
			BisectStep{Outcome: BisectCulprit, First: 11, Last: 11}},
		{"nothing between the ends", world{levels: steps(2, .05, 1)}, nil,
			BisectStep{Outcome: BisectCulprit, First: 1, Last: 1}},
		{"before it none can be measured", world{levels: steps(12, .05, 6)}, []int{5, 6},
			BisectStep{Outcome: BisectCulprit, First: 5, Last: 7}},
		{"two steps", world{levels: steps(12, .03, 3, 9)}, nil,
			BisectStep{Outcome: BisectSeveral, First: 6, Last: 6}},
		{"the tester falls", world{levels: steps(12, .05, 7), drift: func(run int) float64 {
			return -.05 * float64(min(1, run/25))
		}}, nil, BisectStep{Outcome: BisectTester}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.world.noise = quiet
			got := tt.world.bisect(source(5), tt.unusable...)
			if got == nil {
				t.Fatal("the ends do not differ")
			}

			answer := got.BisectStep
			answer.P = 0
			if answer != tt.want {
				t.Errorf("got %+v, want %+v", answer, tt.want)
			}

			for _, s := range got.Sides() {
				if tt.world.drift == nil && math.Abs(math.Log(s.Ratio)-tt.world.levels[s.Version]) > .004 ||
					s.Low >= s.Ratio || s.High <= s.Ratio {
					t.Errorf("version %d: ratio %.4f, %.4f to %.4f, want %.4f", s.Version, s.Ratio, s.Low,
						s.High, math.Exp(tt.world.levels[s.Version]))
				}
			}
		})
	}
}

// TestBisectAfterAPause: after a day without a run the level of the tester is unknown, so the good end is
// measured before anything else is concluded.
func TestBisectAfterAPause(t *testing.T) {
	w := world{levels: steps(64, .03, 20), noise: normalNoise}
	got := w.bisect(source(4))
	if got == nil {
		t.Fatal("the ends do not differ")
	}

	b := got.Bisect
	b.Runs = slices.Clone(b.Runs[:4*VersionBlocks+2])
	if next := b.Next(); next.Measure == 0 {
		t.Fatalf("without a pause: got %+v, want a version between the ends", next)
	}

	b.Runs[4*VersionBlocks+1].At = b.Runs[4*VersionBlocks+1].At.Add(24 * time.Hour)
	if next := b.Next(); next.Measure != 0 || next.Outcome != "" {
		t.Errorf("after a pause: got %+v, want the good end", next)
	}
}

// TestBisectOfQuietEnds: if the ends repeat exactly, small differences between versions do not hide the
// position of the step, and a run that is far off does not move the level.
func TestBisectOfQuietEnds(t *testing.T) {
	rng := source(2)
	for k := 1; k < 15; k++ {
		w := world{levels: steps(16, .03, k), noise: func(*rand.Rand) float64 { return 0 }}
		for v := 1; v < 15; v++ {
			w.levels[v] += .003 * float64(rng.IntN(3)-1)
		}

		got := w.bisect(rng)
		if got == nil || got.Outcome != BisectCulprit || got.First != k || got.Last != k {
			t.Errorf("step at %d: got %+v, want it", k, got)
		}
	}

	x := belief{level: 1, step: -.03, levelVar: 1e-8, stepVar: 1e-8, at: time.Unix(0, 0)}
	x.add(VersionRun{At: time.Unix(0, 0), Value: math.Exp(1 - .3)}, 0, noise{run: 1e-7, every: 1})
	if math.Abs(x.level-1) > 1e-6 || math.Abs(x.fit-minFit) > 1e-6 {
		t.Errorf("an outlier: level %g, fit %g, want 1 and %d", x.level, x.fit, minFit)
	}
}

// TestBisectMeasuresBeside: many versions that cannot be measured make the position after them likely, but
// it is a culprit only once the version after them was measured.
func TestBisectMeasuresBeside(t *testing.T) {
	w := world{levels: steps(28, .05, 27), noise: normalNoise}
	var unusable []int
	for v := 1; v < 26; v++ {
		unusable = append(unusable, v)
	}

	got := w.bisect(source(6), unusable...)
	if got == nil || got.Outcome != BisectCulprit || got.First != 27 || got.Last != 27 {
		t.Fatalf("got %+v, want the bad end", got)
	}

	if got.middle == 0 {
		t.Error("the version before it was not measured")
	}

	// Before the search, each skipped version is as likely to have changed the result as any other.
	b := got.Bisect
	b.Runs = b.Runs[:4*VersionBlocks]
	if s := b.search(); math.Abs(s.single[1]/s.single[2]-26) > 1e-6 {
		t.Errorf("probabilities: got %g and %g, want 26 times the second", s.single[1], s.single[2])
	}
}

// TestBisectBounds: a search asks for no more runs than its bounds allow.
func TestBisectBounds(t *testing.T) {
	rng := source(8)
	for range 30 {
		w := world{levels: steps(16, .015, 1+rng.IntN(15), 1+rng.IntN(15)), noise: normalNoise}
		got := w.bisect(rng)
		if got == nil {
			continue
		}

		// the checks of the answer come on top: two versions beside it, and the good end
		if most := 4 + 4*4 + 2 + runsOfOne; got.middle+got.good > most {
			t.Errorf("%d runs, want at most %d", got.middle+got.good, most)
		}

		ran := map[int]int{}
		for _, r := range got.Runs[4*VersionBlocks:] {
			if ran[r.Version]++; r.Version > 0 && ran[r.Version] > runsOfOne {
				t.Errorf("version %d: %d runs, want at most %d", r.Version, ran[r.Version], runsOfOne)
			}
		}
	}
}

// TestBisectWithAClockSetBack: the answer is the same, and no number is NaN.
func TestBisectWithAClockSetBack(t *testing.T) {
	w := world{levels: steps(16, .05, 5), noise: normalNoise}
	got := w.bisect(source(4))
	if got == nil || got.Last != 5 {
		t.Fatalf("got %+v, want version 5", got)
	}

	b := got.Bisect
	b.Runs = slices.Clone(b.Runs)
	for i := 4*VersionBlocks + 2; i < len(b.Runs); i++ {
		b.Runs[i].At = b.Runs[i].At.Add(-24 * time.Hour)
	}

	if back := b.Next(); math.IsNaN(back.P) || back.Outcome == BisectUndecided {
		t.Errorf("got %+v, want no NaN", back)
	}

	for _, s := range b.Sides() {
		if math.IsNaN(s.Share) || math.IsNaN(s.Low) {
			t.Errorf("version %d: got %+v, want no NaN", s.Version, s)
		}
	}
}
