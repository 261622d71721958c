package report

import (
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
)

// TestBisectionMarkdown: the answer stands above a row for each version, and what a name contains is no
// markup.
func TestBisectionMarkdown(t *testing.T) {
	got := string(BisectionMarkdown(&analysis.Bisection{
		ID:      "20260101-010101-aaaa",
		Summary: []string{"r2 is the first version."},
		Versions: []analysis.BisectVersion{
			{Name: "r1", Side: "good", Boots: 13, Ratio: 1.001, Low: .99, High: 1.02},
			{Name: "a|b", Skipped: "its build exits with 1"},
			{Name: "r2", Side: "bad", Boots: 1, Ratio: .95, Low: .94, High: .96},
			{Name: "r3"},
		},
	}))
	want := `**Bisection 20260101-010101-aaaa**

r2 is the first version.

| version | side | boots | ratio to good | 95 % interval |
| --- | --- | ---: | ---: | ---: |
| r1 | good | 13 | ×1.001 | ×0.9900 to ×1.020 |
| a\|b | left out: its build exits with 1 | 0 |  |  |
| r2 | bad | 1 | ×0.9500 | ×0.9400 to ×0.9600 |
| r3 |  | 0 |  |  |
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
