package main

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// TestLayoutFits: a table fits a terminal, whole words and all, or becomes lists.
func TestLayoutFits(t *testing.T) {
	prose := strings.Repeat("the study's link was 1.00 Gbit/s ", 6)
	wide := grid{make([]string, 14), make([]string, 14)}
	for i := range wide[0] {
		wide[0][i] = "HEADING" + string(rune('A'+i))
		wide[1][i] = "value" + string(rune('a'+i))
	}

	for _, test := range []struct {
		name  string
		rows  grid
		wants []string
	}{
		{"as it is", grid{{"A", "B"}, {"1", "2"}}, []string{"A  B\n1  2\n"}},
		{"prose", grid{{"enough"}, {"  Box", "1"}, {}, {"not enough"}, {"  Box", prose}, {"", "  " + prose}},
			[]string{"  Box  1\n\nnot enough\n  Box  the study's", "1.00 Gbit/s"}},
		{"lists", wide, []string{"valuea  valueb\n  headingc: valuec · headingd: valued"}},
	} {
		got := layout(test.rows, 80)
		for line := range strings.Lines(got) {
			if utf8.RuneCountInString(strings.TrimRight(line, "\n")) > 80 {
				t.Errorf("%s: wider than 80: %q", test.name, line)
			}
		}

		for _, want := range test.wants {
			if !strings.Contains(got, want) {
				t.Errorf("%s: got\n%s\nwant %q in it", test.name, got, want)
			}
		}
	}
}

// TestWrapped: a number keeps its unit, and further lines are indented.
func TestWrapped(t *testing.T) {
	got := strings.Join(wrapped("  model says 12.5 Mbit/s here", 20), "\n")
	if got != "  model says\n    12.5 Mbit/s here" {
		t.Errorf("got\n%s", got)
	}
}
