package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/comparison"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// A comparison that fails nothing says what it could not check.
func TestRegressionsNoted(t *testing.T) {
	one := record.Factors{"streams": "1"}
	four := record.Factors{"streams": "4"}
	of := func(f record.Factors, verdict string) comparison.Comparison {
		return comparison.Comparison{Factors: f, Verdict: verdict}
	}
	suspect := analysis.Regression{Factors: one, Text: "slower", Suspect: true}
	lost := analysis.Regression{Factors: four, Text: "it is not in the second run"}
	same := []comparison.Comparison{of(one, statistics.SameWithin)}
	for name, test := range map[string]struct {
		c       analysis.RunComparison
		strict  bool
		code    int
		said    string
		fails   string
		silence bool
	}{
		"same": {c: analysis.RunComparison{Comparisons: same}, silence: true},
		"suspect": {
			c: analysis.RunComparison{
				Comparisons: same,
				Regressions: []analysis.Regression{suspect, suspect},
			},
			said: "2 regressions not counted: suspect (--strict counts them)",
		},
		"suspect and strict": {
			c: analysis.RunComparison{
				Comparisons: same,
				Regressions: []analysis.Regression{suspect},
			},
			strict:  true,
			code:    codeThreshold,
			silence: true,
		},
		"too few": {
			c:    analysis.RunComparison{Comparisons: []comparison.Comparison{of(one, statistics.TooFew())}},
			said: "no cell can have a verdict: fewer than 6 runs",
		},
		"too few in one": {
			c: analysis.RunComparison{Comparisons: []comparison.Comparison{
				of(one, statistics.TooFew()), of(four, statistics.TooFew()), of(four, statistics.SameWithin),
			}},
			said: "1 of 2 cells can have no verdict",
		},
		"nothing": {code: codeError, silence: true},
		"skipped": {
			c: analysis.RunComparison{
				Comparisons: same,
				OnlyA:       []record.Factors{four},
				SkippedB:    []record.Skipped{{Factors: four, Reason: "no module"}},
			},
			code:    codeThreshold,
			fails:   "the second run skipped it: no module",
			silence: true,
		},
		"everything was lost": {
			c:       analysis.RunComparison{Regressions: []analysis.Regression{lost}},
			code:    codeError,
			silence: true,
		},
	} {
		var messages bytes.Buffer
		p := &program{streams: streams{Err: &messages}}
		err := p.regressions(&test.c, map[string]string{}, test.strict)
		said := messages.String()
		if test.fails != "" && !strings.Contains(fmt.Sprint(err), test.fails) {
			t.Errorf("%s: got %v, want %q", name, err, test.fails)
		}

		if exitCode(err) != test.code || !strings.Contains(said, test.said) || test.silence && said != "" {
			t.Errorf("%s: got code %d (%v), %q; want code %d, %q", name, exitCode(err), err, said, test.code,
				test.said)
		}
	}
}
