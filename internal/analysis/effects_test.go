package analysis

import (
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// TestEffectsOfARun: a run in which two factors vary says what each does; one in which a single factor does
// says nothing.
func TestEffectsOfARun(t *testing.T) {
	run, trials := quickRun(6)
	d := Derive(run, trials)
	if d.Effects == nil {
		t.Fatal("there are no effects")
	}
	seen := map[string]float64{}
	for _, x := range d.Effects.Main {
		seen[x.Factor+" "+x.Level] = x.Ratio.Value
		if x.Ratio.Level == 0 || x.Blocks != 6 {
			t.Errorf("%s %s: %+v, want an interval of 6 blocks", x.Factor, x.Level, x)
		}
	}
	if r := seen["nat masquerade"]; math.Abs(r/(5.5/5.8)-1) > .03 {
		t.Errorf("ratio of NAT: %v of %v", r, seen)
	}
	one := *d
	one.Cells = slices.DeleteFunc(slices.Clone(d.Cells), func(c Cell) bool {
		return !maps.Equal(factor.Streams.With(c.Factors, ""), factor.Streams.With(quickFactors(), ""))
	})
	if e := EffectsOf(&one); e != nil || len(one.Cells) != 2 {
		t.Errorf("effects of streams alone, of %d cells: %+v", len(one.Cells), e)
	}
}

// TestLabelsAreThoseOfTheRun: labels made of factors alone are those that the document has.
func TestLabelsAreThoseOfTheRun(t *testing.T) {
	run, trials := quickRun(2)
	d := Derive(run, trials)
	var cells []record.Factors
	var want []string
	for _, c := range d.Cells {
		cells, want = append(cells, c.Factors), append(want, c.Label)
	}
	if diff := cmp.Diff(want, Labels(run.Design.Catalogue, cells)); diff != "" {
		t.Errorf("labels (-document +factors):\n%s", diff)
	}
}
