package main

import (
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
)

// TestBisectionText: the table holds the versions that were measured or left out.
func TestBisectionText(t *testing.T) {
	got := bisectionText(&analysis.Bisection{
		Summary: []string{"r2 is the first version.", "Ratio to the good end: 0.95."},
		Versions: []analysis.BisectVersion{
			{Name: "r1", Side: "good", Boots: 13},
			{Name: "never"},
			{Name: "broken", Skipped: "its build exits with 1"},
			{Name: "r2", Side: "bad", Boots: 1, Ratio: .95, Low: .94, High: .96},
		},
	})
	want := `VERSION  SIDE                              BOOTS  ÷ GOOD   INTERVAL
r1       good                              13     -        -
broken   left out: its build exits with 1
r2       bad                               1      ×0.9500  ×0.9400 to ×0.9600

r2 is the first version.
Ratio to the good end: 0.95.
`
	if trimmed(got) != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestSplitPlan: a last argument is a plan if its name says so.
func TestSplitPlan(t *testing.T) {
	for args, want := range map[string]int{
		"a b": 2, "a b quick": 2, "a b c": 3, "a b ./my.yaml": 2, "a b my.yml": 2, "quick": 0, "a quick b": 3, "": 0,
	} {
		versions, plans := splitPlan(strings.Fields(args))
		if len(versions) != want || len(versions)+len(plans) != len(strings.Fields(args)) {
			t.Errorf("%q: got versions %q and plans %q, want %d versions", args, versions, plans, want)
		}
	}
}
