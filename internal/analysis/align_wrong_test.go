package analysis

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// planRun is a run of a plan: the same cells in each block, in another order.
func planRun(rng *rand.Rand, cells []float64, blocks int, long int64) []record.Trial {
	var trials []record.Trial
	at := int64(5e9)
	for range blocks {
		for _, i := range rng.Perm(len(cells)) {
			rate := cells[i] * (0.97 + 0.06*rng.Float64())
			f := record.Flow{Received: record.NewTable("bytes", "packets")}
			for k := int64(0); k <= long; k += 1e8 {
				f.Received.Append(at+k, rate*float64(k)/10, 0)
			}

			trials = append(trials, record.Trial{
				Origin:  at,
				Ended:   at + long,
				Traffic: &record.Traffic{Flows: []record.Flow{f}},
			})
			at += long + 6e8 + rng.Int64N(1e8)
		}
	}

	return trials
}

// TestWrongRunsAreRefused: the traffic of another run of the same plan, whose cells come in another order, is
// not taken, as 5 of 16 were at correlations of 0.54 to 0.76.
func TestWrongRunsAreRefused(t *testing.T) {
	for _, cells := range [][]float64{{1, 1, 1, 1, .95, .9, .1, .1}, {1, .9, .5, .4, 2, 1.8, .05, .05}} {
		for _, interval := range []int64{1e9, 1e8} {
			for seed := range uint64(4) {
				ours := planRun(rand.New(rand.NewPCG(seed, 1)), cells, 3, 25e8)
				other := planRun(rand.New(rand.NewPCG(seed, 2)), cells, 3, 25e8)
				seen := watchOf(rand.New(rand.NewPCG(seed, 3)), ours, 1e12, interval, 0,
					ours[len(ours)-1].Ended+5e9)
				if a, err := carriageOf(ours).Align(seen, 1e12, true); err != nil || a.Match < 0.95 {
					t.Errorf("its own run: got a correlation of %.2f, %v", a.Match, err)
				}

				if a, err := carriageOf(other).Align(seen, 1e12, true); err == nil {
					t.Errorf("another run was taken at a correlation of %.2f", a.Match)
				}
			}
		}
	}
}

// TestWallClocksMustAgree: runs whose cells are alike match alike, and only the time tells them apart.
func TestWallClocksMustAgree(t *testing.T) {
	const offset = int64(1e12)
	ours := planRun(rand.New(rand.NewPCG(7, 1)), []float64{1, 1, 1, 1}, 3, 25e8)
	seen := watchOf(rand.New(rand.NewPCG(7, 3)), ours, offset, 1e9, 0, ours[len(ours)-1].Ended+5e9)
	for _, tt := range []struct {
		ahead int64
		wrong bool
		want  string // in the error
	}{
		{0, false, ""}, {90e9, false, ""}, {-90e9, false, ""}, {3600e9, true, ""},
		{3600e9, false, "if its clock were 1h ahead: the clocks must agree within 2m"},
		{-86400e9, false, "24h behind"},
	} {
		a, err := carriageOf(ours).Align(seen, offset-tt.ahead, tt.wrong)
		off := a.Offset - offset
		if tt.want == "" && (err != nil || max(off, -off) > a.Bound) {
			t.Errorf("%d s ahead: got an error of %d ns, %v", tt.ahead/1e9, off, err)
		}

		if tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%d s ahead: got %v, want an error with %q", tt.ahead/1e9, err, tt.want)
		}
	}

	if _, err := carriageOf(ours).Align(seen, 0, false); err == nil {
		t.Error("without a wall clock: got no error")
	}
}
