package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// steps returns 60 values with a noise of 0.1 %, and another level from each of some nights on.
func steps(levels map[int]float64) []float64 {
	r := rand.New(rand.NewPCG(5, 6))
	values := make([]float64, nights)
	level := 1e9
	for i := range values {
		if l, ok := levels[i]; ok {
			level = l
		}

		values[i] = level * (1 + .001*r.NormFloat64())
	}

	return values
}

// TestScores: alarms of one change count once, and a step is found if it is reported where it is, as a loss,
// not before it happens.
func TestScores(t *testing.T) {
	at := func(reports map[int][]int) found {
		f := make(found, nights)
		for night, i := range reports {
			f[night] = i
		}
		return f
	}
	quiet := map[int][]int{20: {15}, 21: {16}, 25: {19}, 30: {28}, 31: {15, 28}}
	if n := at(quiet).alarms(); n != 2 {
		t.Errorf("got %d alarms, want 2: one around night 15, one of 28", n)
	}

	lower, higher := steps(map[int]float64{stepAt: .97e9}), steps(map[int]float64{stepAt: 1.03e9})
	for _, tt := range []struct {
		name    string
		reports map[int][]int
		values  []float64
		delay   float64 // 0: not found
	}{
		{"in the first night", map[int][]int{40: {40}}, lower, 1},
		{"late, and two nights off", map[int][]int{45: {10, 42}, 50: {40}}, lower, 6},
		{"elsewhere", map[int][]int{45: {30}, 59: {44}}, lower, 0},
		{"before it happened", map[int][]int{39: {38}}, lower, 0},
		{"as a gain", map[int][]int{45: {40}}, higher, 0},
		{"nothing", nil, lower, 0},
	} {
		var s score
		s.add(at(tt.reports), tt.values, stepAt)
		if s.histories != 1 || tt.delay == 0 && len(s.delays) > 0 ||
			tt.delay > 0 && !slices.Equal(s.delays, []float64{tt.delay}) {
			t.Errorf("%s: got %+v, want %g", tt.name, s, tt.delay)
		}
	}
}

// TestFigures formats scores: a mean of counts, no count at all, and a share of steps.
func TestFigures(t *testing.T) {
	s := score{alarms: []float64{0, 1, 0, 3}}
	if got := s.falseAlarms(); got != "1.000 (0.000–2.386)" { // 1 ± 1.96 √(2/4)
		t.Error(got)
	}

	s = score{alarms: make([]float64, 200)}
	if got := s.falseAlarms(); got != "0 (≤ 0.015)" {
		t.Error(got)
	}

	s = score{histories: 4, delays: []float64{1, 2, 9}}
	if got := s.steps(); got != "75 % (30–95) | 2" {
		t.Error(got)
	}
}

// TestRules: each rule reports a clear step where it is, and nothing of noise.
func TestRules(t *testing.T) {
	quiet, step := steps(nil), steps(map[int]float64{stepAt: .97e9})
	z := func(v []float64) (out []int) {
		for n := firstNight; n < len(v); n++ {
			out = append(out, outlier(v[:n+1])...)
		}
		return out
	}
	proposed := func(v []float64) []int { p, _ := changePoints(v); return p }
	confirmed := func(v []float64) []int { _, c := changePoints(v); return c }
	for name, rule := range map[string]func([]float64) []int{"t": windows, "proposed": proposed,
		"confirmed": confirmed, "z": z} {
		if got := rule(quiet); len(got) > 0 {
			t.Errorf("%s: got %v of noise", name, got)
		}

		if got := rule(step); len(got) == 0 || got[0] != stepAt {
			t.Errorf("%s: got %v, want %d", name, got, stepAt)
		}
	}

	if got := confirmed(step[:stepAt+3]); len(got) > 0 {
		t.Errorf("got %v confirmed without a later night", got)
	}

	if got := windows(step[:stepAt+11]); len(got) > 0 {
		t.Errorf("got %v from eleven nights, want twelve", got)
	}

	r := rand.New(rand.NewPCG(1, 1))
	n := noiseModel{}.night(r, false, .9)
	if same, lower := interleaved(n.same), interleaved(n.step); same != 0 || lower != -1 {
		t.Errorf("got %d for equal versions, %d for a loss, want 0 and -1", same, lower)
	}
}

// TestTable prints the tables of the committed recording for a few histories, without other programs.
func TestTable(t *testing.T) {
	var out, log strings.Builder
	args := []string{"-runs", "testdata/runs.jsonl.gz", "-series", "4", "-nights", "recorded, routers"}
	if err := run(t.Context(), args, &out, &log); err != nil {
		t.Fatal(err)
	}

	text := out.String()
	for _, name := range []string{ruleOutlier, ruleWindows, ruleProposed, ruleConfirmed, ruleRetested} {
		for _, runs := range []int{1, runsOfNight} {
			if !strings.Contains(text, fmt.Sprintf("| %s | 4 | %d", name, runs)) {
				t.Errorf("no row of %s with %d runs:\n%s", name, runs, text)
			}
		}
	}

	interleaved := "| " + ruleInterleaved + " | 4 | 12 or 24 | "
	if !strings.Contains(text, interleaved) || strings.Contains(text, ruleJumpavg) {
		t.Errorf("got a table without the interleaved rule, or with one that was not asked:\n%s", text)
	}
}
