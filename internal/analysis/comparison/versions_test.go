package comparison

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
)

// versions holds a metric of two versions whose ratio is given for each block, from 1.
func versions(ratios ...float64) Versions {
	v := Versions{
		Factors: quickFactors(),
		Metric:  metrics.Goodput,
		Old:     map[int]float64{},
		New:     map[int]float64{},
	}
	for i, r := range ratios {
		drift := 1 - .02*float64(i) // both share it
		v.Old[i+1], v.New[i+1] = 1e9*drift, 1e9*drift*r
	}
	return v
}

func times(n int, ratio float64) (out []float64) {
	for i := range n {
		out = append(out, ratio+.001*float64(i%3))
	}
	return out
}

// TestOfVersions: a change is one that all first blocks show and all repeated ones again.
func TestOfVersions(t *testing.T) {
	for _, tt := range []struct {
		name    string
		ratios  []float64
		verdict string
		why     string
	}{
		{"seen twice", times(12, .96), statistics.Different, ""},
		{"faster, seen twice", times(12, 1.04), statistics.Different, ""},
		{"not repeated", times(6, .96), statistics.CannotTell, "was not repeated"},
		{"gone in the repeat", append(times(6, .9), times(6, 1)...), statistics.CannotTell, "not reproducible"},
		{"the other way in the repeat", append(times(6, .9), times(6, 1.1)...), statistics.CannotTell,
			"not reproducible"},
		{"not in the first block", append([]float64{1.01}, times(11, .9)...), statistics.CannotTell,
			"the first 6 blocks do not all show it, or by 1 % or less"},
		{"no number in the first block", append([]float64{0}, times(11, .9)...), statistics.CannotTell,
			"only 5 of the first 6 blocks have both numbers"},
		{"a spike", append(times(5, 1), .5), statistics.CannotTell, "the data exclude"},
		{"too small to matter", times(12, .995), statistics.SameWithin, "the data exclude"},
		{"five blocks", times(5, .5), statistics.TooFew(), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := OfVersions([][]Versions{{versions(tt.ratios...)}})[0]
			if len(got) != 1 || got[0].Verdict != tt.verdict || !strings.Contains(got[0].Why, tt.why) ||
				tt.why == "" && got[0].Why != "" {
				t.Fatalf("got %+v, want %q because %q", got, tt.verdict, tt.why)
			}
		})
	}

	if !versions(times(6, .96)...).Unrepeated() || versions(append(times(5, .96), 1.01)...).Unrepeated() {
		t.Error("a repeat must be asked for if all six blocks show a change, and only then")
	}
}

// TestVersionsAreRarelyWrong: of ten equal cells at most one in two hundred is called changed, in either
// direction as often, and of a step of 5 % in one of them most are found, with a noise of 1 % in each run.
func TestVersionsAreRarelyWrong(t *testing.T) {
	const nights, cells, noise, step = 400, 10, .01, .05
	rng := source(39)
	false1, found := map[string]int{}, 0
	for night := range nights {
		var all []Versions
		for cell := range cells {
			v := Versions{Factors: quickFactors("streams", fmt.Sprint(cell+1)), Metric: metrics.Goodput,
				Old: map[int]float64{}, New: map[int]float64{}}
			for block := range 2 * VersionBlocks {
				v.Old[block+1] = 1e9 * math.Exp(noise*rng.NormFloat64())
				v.New[block+1] = 1e9 * math.Exp(noise*rng.NormFloat64())
				if cell == 0 && night%2 == 0 {
					v.New[block+1] *= 1 - step
				}
			}

			all = append(all, v)
		}

		for i, c := range OfVersions([][]Versions{all})[0] {
			planted := i == 0 && night%2 == 0
			switch {
			case c.Verdict != statistics.Different:
			case planted && c.Ratio < 1:
				found++
			case c.Ratio < 1:
				false1["slower"]++
			default:
				false1["faster"]++
			}
		}
	}

	quiet := float64(nights*cells - nights/2)
	atMost(t, "called changed of equal cells", float64(false1["slower"]+false1["faster"])/quiet, 1./200)
	if share := float64(found) / (nights / 2); share < .95 {
		t.Errorf("found %.3f of the steps of 5 %%, want .95", share)
	}
}
