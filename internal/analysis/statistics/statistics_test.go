package statistics

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func BenchmarkFamilyTest(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	family := make([]map[int]float64, 40)
	for i := range family {
		family[i] = map[int]float64{}
		for k := range enumerable {
			family[i][k] = rng.NormFloat64()
		}
	}

	for range b.N {
		FamilyTest(family)
	}
}

func BenchmarkMannWhitney(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	x := make([]float64, 20)
	y := make([]float64, 20)
	for i := range x {
		x[i], y[i] = rng.NormFloat64(), rng.NormFloat64()
	}

	for range b.N {
		MannWhitney(x, y)
	}
}

func TestQuantileSorted(t *testing.T) {
	ten := []float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	for _, test := range []struct{ q, want float64 }{{0, 1}, {.1, 1}, {.11, 2}, {.5, 5}, {.9, 9}, {.91, 10},
		{1, 10}} {
		got := QuantileSorted(ten, test.q)
		if got != test.want {
			t.Errorf("q=%v: %v, want %v", test.q, got, test.want)
		}
	}

	if got := QuantileSorted(nil, .5); !math.IsNaN(got) {
		t.Errorf("of nothing: %v", got)
	}
}

// The interval of a pooled percentile covers it.
func TestQuantileRanksCoverage(t *testing.T) {
	for i, test := range []struct {
		n int
		q float64
	}{{36, .9}, {368, .99}, {1000, .99}, {100, .5}} {
		rng := source(uint64(500 + i))
		low, high := quantileRanks(test.n, test.q)
		truth := test.q
		hit := 0
		const n = 2000
		for range n {
			below := 0
			for range test.n {
				if rng.Float64() <= truth {
					below++
				}
			}

			// The low-th value is at or below the quantile if at least low values are, and the high-th at
			// or above if fewer than high are.
			if below >= low && below < high {
				hit++
			}
		}

		share := float64(hit) / n
		if share < .94 {
			t.Errorf("n=%d q=%v ranks %d…%d: coverage %.3f, want .95", test.n, test.q, low, high, share)
		}
	}
}

func TestTrimmedMean(t *testing.T) {
	var values []float64
	for i := range 100 {
		values = append(values, float64(100-i))
	}

	if got, ok := TrimmedMean(values, .95); !ok || got != 48 { // of 1…95
		t.Errorf("got %v, want 48", got)
	}

	if got, ok := TrimmedMean([]float64{7}, .95); !ok || got != 7 {
		t.Errorf("of one: got %v, want it", got)
	}
}

func TestRunsTest(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 71))
	sample := func(n int, shift float64) map[int]float64 {
		out := map[int]float64{}
		for b := range n {
			out[b+3] = shift + rng.NormFloat64()
		}
		return out
	}
	for _, test := range []struct {
		n, m int
		name string
	}{{6, 6, "Fisher–Pitman permutation"}, {6, 10, "Fisher–Pitman permutation"}, {9, 8, "Mann–Whitney"},
		{6, 40, "Mann–Whitney"}} {
		var a, b []map[int]float64
		for range 30 {
			a, b = append(a, sample(test.n, 0)), append(b, sample(test.m, 0))
		}

		a, b = append(a, sample(test.n, 0)), append(b, sample(test.m, 60))
		p, name := RunsTest(a, b)
		if len(p) != 31 || p[30] > .05 || !strings.HasPrefix(name, test.name) {
			t.Errorf("%d and %d: p %v of a large difference among noise (%s)", test.n, test.m, p, name)
		}
	}

	// Alone: the smallest p that six against six can give.
	if p, _ := RunsTest([]map[int]float64{sample(6, 0)},
		[]map[int]float64{sample(6, 60)}); math.Abs(p[0]-2.0/924) > 1e-12 {
		t.Errorf("one comparison: %v", p)
	}

	both := []map[int]float64{sample(6, 0), sample(6, 0)}
	far := []map[int]float64{sample(6, 60), sample(6, 60)}
	if p, _ := RunsTest(both, far); math.Abs(p[0]-2.0/924) > 1e-12 || p[1] != p[0] {
		t.Errorf("two comparisons: %v", p)
	}

	if p, _ := RunsTest(nil, nil); len(p) != 0 {
		t.Errorf("no family: %v", p)
	}
}

// draws of each simulation. The standard error of a share near 5 % is then 0.2 points.
const draws = 10000

func source(label uint64) *rand.Rand { return rand.New(rand.NewPCG(20260101, label)) }

// within fails if a share of draws lies more than four standard errors from what is expected.
func within(t *testing.T, what string, got, want float64) {
	t.Helper()
	se := math.Sqrt(want * (1 - want) / draws)
	if math.Abs(got-want) > 4*se {
		t.Errorf("%s = %.4f, want %.4f ± %.4f", what, got, want, 4*se)
	}
}

func atMost(t *testing.T, what string, got, most float64) {
	t.Helper()
	se := math.Sqrt(most * (1 - most) / draws)
	if got > most+4*se {
		t.Errorf("%s = %.4f, want at most %.4f", what, got, most)
	}
}

// Ranks and levels are those that METHODS §5 lists.
func TestMedianInterval(t *testing.T) {
	type ranks struct{ Low, High int }
	tests := []struct {
		n     int
		want  ranks
		level float64
	}{
		{6, ranks{1, 6}, .96875}, {7, ranks{1, 7}, .984375}, {8, ranks{1, 8}, .9921875},
		{10, ranks{2, 9}, .978515625},
		{15, ranks{4, 12}, .96484375}, {20, ranks{6, 15}, .95861053}, {30, ranks{10, 21}, .95722603},
	}
	for _, test := range tests {
		low, high, level, ok := MedianInterval(test.n)
		diff := cmp.Diff(test.want, ranks{low, high})
		if diff != "" || !ok {
			t.Errorf("n=%d: ok %v (-want +got)\n%s", test.n, ok, diff)
		}

		if math.Abs(level-test.level) > 1e-6 {
			t.Errorf("n=%d: level %v, want %v", test.n, level, test.level)
		}
	}

	for n := range MinInterval {
		if _, _, _, ok := MedianInterval(n); ok {
			t.Errorf("n=%d has an interval", n)
		}
	}
}

func TestSummarise(t *testing.T) {
	tests := []struct {
		name   string
		values []float64
		want   Value
	}{
		{"single", []float64{3}, Value{
			Spread: Spread{
				Low:      3,
				High:     3,
				N:        1,
				Interval: IntervalSingle,
			},
			Median: 3,
		}},
		{"range", []float64{3, 1, 2}, Value{
			Spread: Spread{
				Low:      1,
				High:     3,
				N:        3,
				Interval: IntervalRange,
			},
			Median: 2,
		}},
		{"even", []float64{4, 1, 2, 3}, Value{
			Spread: Spread{
				Low:      1,
				High:     4,
				N:        4,
				Interval: IntervalRange,
			},
			Median: 2.5,
		}},
		{"five have no interval", []float64{5, 4, 3, 2, 1}, Value{
			Spread: Spread{
				Low:      1,
				High:     5,
				N:        5,
				Interval: IntervalRange,
			},
			Median: 3,
		}},
		{"six", []float64{6, 5, 4, 3, 2, 1}, Value{
			Spread: Spread{
				Low:      1,
				High:     6,
				N:        6,
				Interval: IntervalOrder,
				Level:    .96875,
			},
			Median: 3.5,
		}},
	}
	for _, test := range tests {
		test.want.Values = test.values
		got := Summarise(test.values)
		got.Level = math.Round(got.Level*1e9) / 1e9
		diff := cmp.Diff(test.want, got)
		if diff != "" {
			t.Errorf("%s (-want +got)\n%s", test.name, diff)
		}
	}
}

func TestCarries(t *testing.T) {
	for _, test := range []struct {
		q    float64
		need int
	}{{.5, 6}, {.9, 36}, {.99, 368}, {.999, 3688}} {
		if Carries(test.need-1, test.q) || !Carries(test.need, test.q) {
			t.Errorf("%d probes do not turn out to be what p%g needs", test.need, test.q*100)
		}
	}
}

// distributions with their true medians.
var distributions = []struct {
	name   string
	median float64
	draw   func(*rand.Rand) float64
}{
	{"normal", 0, func(r *rand.Rand) float64 { return r.NormFloat64() }},
	{"lognormal", 1, func(r *rand.Rand) float64 { return math.Exp(r.NormFloat64()) }},
	// Two modes, the lower with 60 %: the median is its 5/6 quantile.
	{"bimodal", .967421566, func(r *rand.Rand) float64 {
		if r.Float64() < .6 {
			return r.NormFloat64()
		}
		return 20 + r.NormFloat64()
	}},
}

func TestMedianCoverage(t *testing.T) {
	for i, d := range distributions {
		for _, n := range []int{6, 10, 21} {
			rng := source(uint64(i*100 + n))
			_, _, level, _ := MedianInterval(n)
			values := make([]float64, n)
			hit := 0
			for range draws {
				for k := range values {
					values[k] = d.draw(rng)
				}

				v := Summarise(values)
				if v.Low <= d.median && d.median <= v.High {
					hit++
				}
			}

			within(t, d.name+" coverage", float64(hit)/draws, level)
		}
	}
}

// Stopping on the width costs little coverage, and is held to 93 %.
func TestAdaptiveCoverage(t *testing.T) {
	rng := source(7)
	hit, stopped := 0, 0
	for range draws {
		var values []float64
		for len(values) < 30 {
			values = append(values, 100+rng.NormFloat64())
			if Narrow(values, .02, 6) {
				stopped++
				break
			}
		}

		v := Summarise(values)
		if v.Low <= 100 && 100 <= v.High {
			hit++
		}
	}

	if share := float64(hit) / draws; share < .93 {
		t.Errorf("coverage %.4f, want at least .93", share)
	}

	if share := float64(stopped) / draws; share < .9 {
		t.Errorf("%.3f stopped before 30 runs, want at least .9", share)
	}
}

func TestNarrow(t *testing.T) {
	six := []float64{100, 100.2, 100.4, 100.6, 100.8, 101}
	tests := []struct {
		name   string
		values []float64
		width  float64
		min    int
		want   bool
	}{
		{"narrow", six, .02, 6, true},
		{"too wide", six, .005, 6, false},
		{"minimum not reached", six, .02, 7, false},
		{"never below six", six[:5], 1, 1, false},
		{"zeros", make([]float64, 8), .02, 6, false},
	}
	for _, test := range tests {
		got := Narrow(test.values, test.width, test.min)
		if got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}

// Published or hand-counted p-values.
func TestRankTests(t *testing.T) {
	near := func(name string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 1e-9 {
			t.Errorf("%s = %v, want %v", name, got, want)
		}
	}
	near("signed rank, six alike", SignedRank([]float64{1, 2, 3, 4, 5, 6}), 2.0/64)
	near("signed rank, balanced", SignedRank([]float64{1, -2, -3, 4}), 1)
	near("signed rank, one against", SignedRank([]float64{-1, 2, 3, 4, 5, 6}), 4.0/64)
	near("signed rank, zeros and ties", SignedRank([]float64{0, 1, 1, 1, 1, 1}), 2.0/32)
	near("signed rank, no difference", SignedRank([]float64{0, 0}), 1)
	near("Mann–Whitney 4+4 apart", MannWhitney([]float64{1, 2, 3, 4}, []float64{5, 6, 7, 8}), 2.0/70)
	near("Mann–Whitney 5+5 apart", MannWhitney([]float64{1, 2, 3, 4, 5}, []float64{6, 7, 8, 9, 10}), 2.0/252)
	near("Mann–Whitney 6+6 apart", MannWhitney([]float64{1, 2, 3, 4, 5, 6}, []float64{7, 8, 9, 10, 11, 12}),
		2.0/924)
	near("Mann–Whitney equal", MannWhitney([]float64{1, 1, 1}, []float64{1, 1, 1}), 1)
	near("Mann–Whitney empty", MannWhitney(nil, []float64{1}), 1)
}

// With ties the distribution is that of all divisions of the values.
func TestMannWhitneyTiesByEnumeration(t *testing.T) {
	rng := source(12)
	for range 60 {
		a := make([]float64, 3+rng.IntN(3))
		b := make([]float64, 3+rng.IntN(3))
		for i := range a {
			a[i] = float64(rng.IntN(4))
		}

		for i := range b {
			b[i] = float64(rng.IntN(4))
		}

		got, want := MannWhitney(a, b), enumerated(a, b)
		if math.Abs(got-want) > 1e-9 {
			t.Errorf("%v and %v: p %v, want %v", a, b, got, want)
		}
	}
}

// enumerated doubles the smaller tail of the rank sum over all subsets.
func enumerated(a, b []float64) float64 {
	ranks := doubledRanks(append(append([]float64{}, a...), b...))
	seen := 0
	for _, r := range ranks[:len(a)] {
		seen += r
	}

	low := 0.0
	high := 0.0
	all := 0.0
	for subset := range 1 << len(ranks) {
		size, sum := 0, 0
		for i, r := range ranks {
			if subset>>i&1 == 1 {
				size = size + 1
				sum = sum + r
			}
		}

		if size != len(a) {
			continue
		}

		all++
		if sum <= seen {
			low++
		}

		if sum >= seen {
			high++
		}
	}

	return math.Min(1, 2*math.Min(low, high)/all)
}

// Beyond the exact range the approximation must agree with the exact test.
func TestNormalApproximation(t *testing.T) {
	rng := source(11)
	for range 50 {
		var a, b, d []float64
		for range 30 {
			a, b = append(a, rng.NormFloat64()), append(b, .4+rng.NormFloat64())
			d = append(d, .3+rng.NormFloat64())
		}

		exact := MannWhitney(a, b)
		ranks := doubledRanks(append(append([]float64{}, a...), b...))
		sum := 0
		for _, r := range ranks[:30] {
			sum += r
		}

		if got := mannWhitneyNormal(ranks, 30, sum); math.Abs(got-exact) > .005 {
			t.Errorf("Mann–Whitney: normal %v, exact %v", got, exact)
		}

		if got, want := SignedRank(append(d, make([]float64, 40)...)), SignedRank(d); got != want {
			t.Errorf("signed rank with zeros %v, without %v", got, want)
		}
	}
}

func TestHolm(t *testing.T) {
	got := Holm([]float64{.01, .04, .03, .005})
	diff := cmp.Diff([]float64{.03, .06, .06, .02}, got,
		cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) < 1e-12 }))
	if diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}

	if got := Holm(nil); len(got) != 0 {
		t.Errorf("Holm of nothing = %v", got)
	}
}

// With no difference anywhere, a family of ten comparisons with one baseline raises a false alarm in at
// most 5 % of runs, and with six blocks it can still see a large difference, which Holm's correction could
// not.
func TestFamilyErrorRate(t *testing.T) {
	for _, blocks := range []int{6, 8} {
		rng := source(uint64(20 + blocks))
		alarms := 0
		for range draws {
			family := make([]map[int]float64, 10)
			for i := range family {
				family[i] = map[int]float64{}
			}

			for b := range blocks {
				base := rng.NormFloat64()
				for i := range family {
					family[i][b] = rng.NormFloat64() - base
				}
			}

			p, _ := FamilyTest(family)
			for _, p := range p {
				if p <= .05 {
					alarms++
					break
				}
			}
		}

		atMost(t, "family-wise error", float64(alarms)/draws, .05)
	}

	family := []map[int]float64{{}, {}, {}}
	for b := range 6 {
		family[0][b] = 1 + .01*float64(b)
		family[1][b] = .5 * math.Pow(-1, float64(b)) * (1 + .1*float64(b))
		family[2][b] = -2 - .1*float64(b)
	}

	p, _ := FamilyTest(family)
	if p[0] > .05 || p[2] > .05 || p[1] <= .05 {
		t.Errorf("p = %v, want the first and the last below .05", p)
	}
}

// Of two comparisons the stronger one's adjusted p-value lies between its own and Bonferroni's, and
// identical comparisons cost nothing.
func TestFamilyBounds(t *testing.T) {
	rng := source(33)
	for range 200 {
		f := map[int]float64{}
		g := map[int]float64{}
		for b := range 6 + rng.IntN(4) {
			f[b], g[b] = .8+rng.NormFloat64(), rng.NormFloat64()
		}

		same, _ := FamilyTest([]map[int]float64{f, f})
		both, _ := FamilyTest([]map[int]float64{f, g})
		if same[0] != same[1] {
			t.Fatalf("equal comparisons have p %v", same)
		}

		if both[0] < same[0]-1e-12 || both[0] > 2*same[0]+both[1] {
			t.Fatalf("p alone %v, in a family %v", same[0], both)
		}
	}

	if p, name := FamilyTest([]map[int]float64{{1: 1, 2: 2, 3: 3, 4: 4, 5: 5, 6: 6}}); p[0] != 2.0/64 ||
		!strings.Contains(name, "Wilcoxon") {
		t.Errorf("a family of one: %v, %s", p, name)
	}

	long := map[int]float64{}
	for b := range 14 {
		long[b] = 1 + float64(b)
	}

	if p, _ := FamilyTest([]map[int]float64{long, long}); math.Abs(p[0]-2*2/math.Pow(2, 14)) > 1e-12 {
		t.Errorf("fourteen blocks: %v, want Holm's", p)
	}

	if p, _ := FamilyTest(nil); len(p) != 0 {
		t.Errorf("no family: %v", p)
	}
}

func TestMannWhitneyErrorRate(t *testing.T) {
	rng := source(41)
	alarms := 0
	a := make([]float64, 7)
	b := make([]float64, 6)
	for range draws {
		for i := range a {
			a[i] = math.Exp(rng.NormFloat64())
		}

		for i := range b {
			b[i] = math.Exp(rng.NormFloat64())
		}

		if MannWhitney(a, b) <= .05 {
			alarms++
		}
	}

	atMost(t, "false alarms", float64(alarms)/draws, .05)
}

func TestShiftCoverage(t *testing.T) {
	for i, n := range []int{6, 10} {
		rng := source(uint64(50 + i))
		hit := 0
		var level float64
		a := make([]float64, n)
		b := make([]float64, n+1)
		for range draws {
			for k := range a {
				a[k] = rng.NormFloat64()
			}

			for k := range b {
				b[k] = 1.5 + rng.NormFloat64()
			}

			_, low, high, l, ok := Shift(a, b)
			if !ok {
				t.Fatal("no interval")
			}

			if level = l; low <= 1.5 && 1.5 <= high {
				hit++
			}
		}

		within(t, "coverage of the shift", float64(hit)/draws, level)
	}

	if _, _, _, _, ok := Shift([]float64{1, 2}, []float64{3, 4}); ok {
		t.Error("two against two have an interval")
	}
}
