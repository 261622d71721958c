package analysis

import (
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// thresholds checks every requirement in every cell that it speaks of. What was skipped, failed or not
// measured misses, with the reason: a requirement that nobody checked is not met.
func thresholds(required []record.Requirement, cells []*compared, skipped []record.Skipped) []Threshold {
	var out []Threshold
	for _, r := range required {
		matched := false
		for _, c := range cells {
			if matches(c.factors, r.Where) {
				matched = true
				out = append(out, check(r, c))
			}
		}
		for _, s := range skipped {
			if matches(s.Factors, r.Where) {
				matched = true
				out = append(out, unmet(r, s.Factors, "skipped: "+s.Reason))
			}
		}
		if !matched {
			out = append(out, unmet(r, nil, "no cell matches"))
		}
	}
	return out
}

func unmet(r record.Requirement, f record.Factors, why string) Threshold {
	return Threshold{Requirement: r.Text, Factors: f, Metric: r.Metric, Op: r.Op, Limit: r.Value, Reason: why}
}

// check compares a cell's median. A suspect cell is compared too: doubts are shown beside it.
func check(r record.Requirement, c *compared) Threshold {
	t := unmet(r, c.factors, "")
	if c.grade == GradeFailed {
		t.Reason = "the cell failed"
		if len(c.reasons) > 0 {
			t.Reason += ": " + c.reasons[0].Text
		}
		return t
	}
	v, ok := c.metrics[r.Metric]
	if !ok {
		t.Reason = r.Metric + " is missing"
		if why := c.missing[r.Metric]; why != "" {
			t.Reason += ": " + why
		}
		return t
	}
	t.Value = v.Median
	switch r.Op {
	case ">=":
		t.Met = v.Median >= r.Value
	case ">":
		t.Met = v.Median > r.Value
	case "<=":
		t.Met = v.Median <= r.Value
	case "<":
		t.Met = v.Median < r.Value
	default:
		t.Reason = "unknown comparison " + r.Op
	}
	return t
}

// matches compares levels as text; a factor that a cell lacks is at its default, for which the words of
// "nothing set" stand.
func matches(f record.Factors, where map[string]string) bool {
	for name, want := range where {
		level, ok := f[name]
		if level != want && (ok || !atBaseline(want, "")) {
			return false
		}
	}
	return true
}
