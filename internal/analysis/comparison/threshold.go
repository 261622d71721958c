package comparison

import (
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Threshold is the result of one requirement in one cell.
type Threshold struct {
	Requirement string         `json:"requirement"`
	Factors     record.Factors `json:"factors,omitempty"`
	Metric      string         `json:"metric,omitempty"` // name of a metric, or "validity"
	Op          string         `json:"op,omitempty"`     // >=, >, <= or <; = for validity
	Limit       float64        `json:"limit,omitempty"`  // in the metric's unit
	Met         bool           `json:"met"`
	Reason      string         `json:"reason,omitempty"` // such as "the cell failed" or "no cell matches"
	Value       float64        `json:"value,omitempty"`
	// Validity is the grade of the cell. It is absent if there is no cell.
	Validity string `json:"validity,omitempty"`
}

// Thresholds checks each requirement in each cell to which it applies. A cell that was skipped, failed or not
// measured does not meet the requirement. Reason states which of these applies.
func Thresholds(required []record.Requirement, cells []*metrics.Cell, skipped []record.Skipped) []Threshold {
	var out []Threshold
	for _, r := range required {
		matched := false
		for _, c := range cells {
			if matches(c.Factors, r.Where) {
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

// check compares a cell's median with the limit. A suspect cell may pass, unless the requirement is about
// validity.
func check(r record.Requirement, c *metrics.Cell) Threshold {
	t := unmet(r, c.Factors, "")
	t.Validity = c.Grade
	switch c.Grade {
	case evidence.GradeFailed:
		t.Reason = "the cell failed"
	case evidence.GradeNotReached:
		t.Reason = "the cell was not reached"
	}

	if t.Reason != "" {
		if len(c.Reasons) > 0 {
			t.Reason += ": " + c.Reasons[0].Text
		}
		return t
	}

	if r.Metric == record.Validity {
		t.Met = c.Grade == evidence.GradeValid
		if !t.Met {
			t.Reason = "the cell is " + c.Grade + reasonsOf(c)
		}
		return t
	}

	v, ok := c.Metrics[r.Metric]
	if !ok {
		t.Reason = strings.TrimSuffix("there is no "+metrics.Label(r.Metric)+": "+c.Missing[r.Metric], ": ")
		return t
	}

	t.Value = v.Median
	var known bool
	t.Met, known = map[string]bool{">=": v.Median >= r.Value, ">": v.Median > r.Value,
		"<=": v.Median <= r.Value, "<": v.Median < r.Value}[r.Op]
	if !known {
		t.Reason = "unknown comparison " + r.Op
	}

	return t
}

// reasonsOf lists the reasons for a cell's grade, such as ": background-load: other processes …; …".
func reasonsOf(c *metrics.Cell) string {
	text := ""
	for i, r := range c.Reasons {
		text += []string{": ", "; "}[min(i, 1)] + r.Kind + ": " + r.Text
	}
	return text
}

// matches reports whether a cell has the given levels, which are compared as text. If the cell lacks a
// factor, a level that means "not set" matches.
func matches(f record.Factors, where map[string]string) bool {
	for name, want := range where {
		if level, ok := f[name]; level != want && (ok || !factor.Same(want, "")) {
			return false
		}
	}
	return true
}
