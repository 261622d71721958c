package main

import (
	"strings"
	"testing"
)

func TestRow(t *testing.T) {
	runs := make([][]figures, 2)
	for i := range 7 {
		runs[0] = append(runs[0], figures{value: float64(10 + i)})
		runs[1] = append(runs[1], figures{value: 10})
	}

	up := quantity{unit: "u"}
	down := quantity{unit: "u", lower: true}
	for _, tt := range []struct {
		c    comparison
		want []string
	}{
		{comparison{name: "a", of: up, target: .9, stretch: 1}, []string{"| 1.3 |", "1.0–1.6", "13.0, 10.0 u",
			"≥ 0.9", "| stretch |"}},
		{comparison{name: "a", of: up, target: .9, stretch: 1.1}, []string{"| target |"}},
		{comparison{name: "a", of: up, target: 1.2, stretch: 1.3},
			[]string{"| stretch by the median only |"}},
		{comparison{name: "a", of: up, target: 1.2, stretch: 1.4}, []string{"| target by the median only |"}},
		{comparison{name: "a", of: up, target: 2, stretch: 3}, []string{"| missed |"}},
		{comparison{name: "a", of: down, target: 1.6, stretch: 1}, []string{"≤ 1.6", "| target |"}},
		{comparison{name: "a", of: down, target: 1.5, stretch: 1}, []string{"| target by the median only |"}},
		{comparison{name: "a", of: up, within: .7}, []string{"1 ± 70 %", "| agrees |"}},
		{comparison{name: "a", of: up, within: .5}, []string{"| DISAGREES |"}},
	} {
		for _, want := range tt.want {
			got, _ := tt.c.row(runs)
			if !strings.Contains(got, want) {
				t.Errorf("row %q lacks %q", got, want)
			}
		}
	}
}

func TestEverySuiteIsComplete(t *testing.T) {
	for _, s := range suites() {
		for _, c := range s.rows {
			if c.within > 0 {
				c.target, c.stretch = 1, 1
			}

			if c.ours.engine == nil || c.theirs.engine == nil || c.of.of == nil || c.target == 0 ||
				c.stretch == 0 || c.offload == "" {
				t.Errorf("suite %s: row %+v is not complete", s.name, c)
			}

			if c.within == 0 && (c.stretch < c.target) != c.of.lower {
				t.Errorf("suite %s, %s: the stretch %v is nearer than the target %v", s.name, c.name,
					c.stretch,
					c.target)
			}
		}
	}
}
