package main

import (
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/model"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
)

// TestEffectsFitTheScreen: whatever the names and the numbers, no line is longer than the terminal, and each
// ratio says what it is against, and that it is suspect, and which blocks it leaves out.
func TestEffectsFitTheScreen(t *testing.T) {
	for _, level := range []string{"1280", "only-hardware-queue", strings.Repeat("long", 9)} {
		e := model.Effects{Main: []model.Effect{{
			Factor:   "queue@router.wan",
			Level:    level,
			Against:  "1420",
			Default:  true,
			Ratio:    model.Interval{Value: .93, Low: .912, High: .951, Level: .97},
			Settings: 12,
			Blocks:   10,
			Unused:   2,
			Measured: 12,
			Suspect:  true,
			Verdict:  statistics.SameWithin,
		}}}
		e.Charts = []model.Chart{{
			Factors:  []string{"queue@router.wan", "streams"},
			Settings: 2,
			At:       "clock auto, 1400MHz; firmware stable, testing; governor performance, powersave",
			Bars:     []model.Bar{{Levels: []string{level, "16"}, Rate: 4e8}},
		}}
		for _, width := range []int{80, 100} {
			text := effectsText(e, width)
			if n := widest(text); n > width {
				t.Errorf("%s: %d columns at %d:\n%s", level, n, width, text)
			}

			words := strings.Join(strings.Fields(text), " ")
			for _, want := range []string{"×0.930", level, "1420 (default)", "suspect: ", ", suspect",
				"2 of 12 blocks are not used", "400 Mbit/s"} {
				if !strings.Contains(words, want) {
					t.Errorf("%s at %d lacks %q:\n%s", level, width, want, text)
				}
			}
		}

		whole := effectsText(e, 0) // for a file nothing is broken or left out
		if !strings.Contains(whole, "×0.912 to ×0.951  12") || !strings.Contains(whole, e.Charts[0].At) {
			t.Errorf("%s", whole)
		}
	}
}

// TestRunsCountOnce: what differs between runs only is named once, for all levels and interactions.
func TestRunsCountOnce(t *testing.T) {
	clock := model.Effect{Factor: "clock", Between: true}
	e := model.Effects{Main: []model.Effect{clock, clock}}
	want := "clock: differs between runs only, so each run counts once, in interactions too"
	if got := runsText(e, 0); strings.Count(got, want) != 1 || strings.Contains(got, "clock, clock") {
		t.Errorf("got %q", got)
	}
}
