package diagnosis_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/diagnosis"
)

// TestInstancesAreCells: every cell that the suite measures is one that plans can have, no two of a run are
// the same, and the instances are those of the seed.
func TestInstancesAreCells(t *testing.T) {
	all := instances(suiteSeed)
	seen := map[string]string{}
	for _, x := range all {
		for _, c := range x.cells(true) {
			if _, err := c.key(); err != nil {
				t.Errorf("%s: %v", x.ID, err)
			}
		}
		key, _ := x.cellOf(x.Faults...).key()
		if other, twice := seen[x.stage()+key]; twice {
			t.Errorf("%s and %s are the same cell: %s", x.ID, other, key)
		}
		seen[x.stage()+key] = x.ID
	}
	for i, again := range instances(suiteSeed) {
		if again.ID != all[i].ID || !maps.Equal(again.cell(again.Faults...), all[i].cell(all[i].Faults...)) {
			t.Fatalf("%s is drawn otherwise the second time", again.ID)
		}
	}
	if other := instances(suiteSeed + 1); maps.Equal(other[0].Faults[0].Levels, all[0].Faults[0].Levels) {
		t.Error("another seed draws the same")
	}
}

// TestSizeOfTheSuite holds what the suite promises, and that its halves are halves.
func TestSizeOfTheSuite(t *testing.T) {
	kinds, classes, half := map[string]int{}, map[string][2]int{}, [2]int{}
	for _, x := range instances(suiteSeed) {
		kinds[x.Kind]++
		class, _, _ := strings.Cut(x.ID, "#")
		n := classes[class]
		i := 0
		if tuning(x.ID) {
			i = 1
		}
		n[i]++
		half[i]++
		classes[class] = n
		if tuning(x.ID) != tuning(x.ID+"/untouched") {
			t.Errorf("%s and its untouched cell are on two halves", x.ID)
		}
	}
	for kind, least := range map[string]int{kindFault: 400, kindTwo: 40, kindHealthy: 60, kindUnknown: 40} {
		if kinds[kind] < least {
			t.Errorf("%d instances of kind %s, want %d", kinds[kind], kind, least)
		}
	}
	if n := kinds[kindFault] + kinds[kindTwo] + kinds[kindNatural]; n < 480 {
		t.Errorf("%d instances of faults, want 480", n)
	}
	for class, n := range classes {
		if max(n[0], n[1])-min(n[0], n[1]) > 2 {
			t.Errorf("class %s: %d instances to test on, %d to tune on", class, n[0], n[1])
		}
	}
	t.Logf("%d instances: %v, %d to tune on", half[0]+half[1], kinds, half[1])
}

// TestTruthsAreClasses: what is planted has a rule.
func TestTruthsAreClasses(t *testing.T) {
	for _, x := range instances(suiteSeed) {
		for _, f := range x.Faults {
			if _, known := diagnosis.RuleOf(f.Truth.Class); !known {
				t.Fatalf("%s: there is no rule %s", x.ID, f.Truth.Class)
			}
		}
		if x.Disturb != "" && !slices.Contains(slices.Collect(maps.Keys(disturbances())), x.Disturb) {
			t.Errorf("%s: there is no disturbance %s", x.ID, x.Disturb)
		}
	}
}
