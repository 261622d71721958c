package analysis

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/comparison"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// RunComparison is two runs side by side: b against a. Runs made at different times are not paired, so
// everything that changed between them is a candidate cause of every difference.
type RunComparison struct {
	Format      string                  `json:"format"`
	A           RunHead                 `json:"a"`
	B           RunHead                 `json:"b"`
	Summary     []string                `json:"summary"`
	Comparisons []comparison.Comparison `json:"comparisons"` // ratio b ÷ a
	Regressions []Regression            `json:"regressions"` // what is worse in b, or lost
	Changes     []Change                `json:"changes"`     // what differs between the runs
	OnlyA       []record.Factors        `json:"only_a,omitempty"`
	OnlyB       []record.Factors        `json:"only_b,omitempty"`
	Metrics     []record.Metric         `json:"metrics"`
}

// Change is one thing that differs between two runs. Cause says whether it can explain a difference of
// results.
type Change struct {
	Kind  string `json:"kind"` // "environment", "condition", "version", "plan", "lab"
	Name  string `json:"name"`
	A     string `json:"a"`
	B     string `json:"b"`
	Cause bool   `json:"cause"`
}

// Regression is a cell that is worse in the second run, or has no number there where the first had one.
type Regression struct {
	Factors record.Factors `json:"factors"`
	Metric  string         `json:"metric,omitempty"` // absent: the cell as a whole
	Text    string         `json:"text"`
}

// CompareRuns matches the cells of two runs by their factors and compares the metrics that both have: the
// ratio of the medians' Hodges–Lehmann shift on logarithms, with the interval that inverts the Mann–Whitney
// test. All comparisons are one family, see RunsTest. Below six runs on either side there is no verdict.
func CompareRuns(a, b *Document) *RunComparison {
	c := &RunComparison{Format: record.Format, A: a.Run, B: b.Run, Changes: changes(a, b),
		Comparisons: []comparison.Comparison{}, Regressions: []Regression{}}
	theirs := map[string]*Cell{}
	for i := range b.Cells {
		theirs[b.Cells[i].Factors.Key()] = &b.Cells[i]
	}
	var matched []record.Factors
	for i := range a.Cells {
		mine := &a.Cells[i]
		key := mine.Factors.Key()
		other, ok := theirs[key]
		c.Regressions = append(c.Regressions, lost(mine, other, b.Skipped)...)
		if !ok {
			c.OnlyA = append(c.OnlyA, mine.Factors)
			continue
		}
		delete(theirs, key)
		matched = append(matched, mine.Factors)
	}
	for i := range b.Cells {
		if _, left := theirs[b.Cells[i].Factors.Key()]; left {
			c.OnlyB = append(c.OnlyB, b.Cells[i].Factors)
		}
	}
	c.Comparisons = comparison.OfRuns(matched, comparison.Run{Values: numbers(a), Path: a.Path},
		comparison.Run{Values: numbers(b), Path: b.Path}, causesOf(c.Changes))
	used := map[string]bool{}
	for _, x := range c.Comparisons {
		used[x.Metric] = true
	}
	c.Metrics = pick(slices.Concat(a.Metrics, b.Metrics), used)
	c.Regressions = append(c.Regressions, worse(c)...)
	c.Summary = runWords(c)
	return c
}

// lost are the numbers that a cell had in the first run and has not in the second.
func lost(a, b *Cell, skipped []record.Skipped) []Regression {
	switch {
	case a.Runs == 0:
		return nil
	case b == nil:
		text := "it is not in the second run"
		for _, s := range skipped {
			if s.Factors.Key() == a.Factors.Key() {
				text = "it was skipped in the second run: " + s.Reason
			}
		}
		return []Regression{{Factors: a.Factors, Text: text}}
	case b.Runs == 0:
		text := "it has no number in the second run"
		if len(b.Reasons) > 0 {
			text += ": " + b.Reasons[0].Text
		}
		return []Regression{{Factors: a.Factors, Text: text}}
	}
	var out []Regression
	for _, m := range comparison.JudgedMetrics {
		_, had := a.Metrics[m.Name]
		if _, has := b.Metrics[m.Name]; !m.Vital || !had || has {
			continue
		}
		text := "the second run has no " + metrics.Label(m.Name)
		if why := b.Missing[m.Name]; why != "" {
			text += ": " + why
		}
		out = append(out, Regression{a.Factors, m.Name, text})
	}
	return out
}

// worse are the comparisons that found a difference for the worse.
func worse(c *RunComparison) []Regression {
	better := map[string]string{}
	for _, m := range c.Metrics {
		better[m.Name] = m.Better
	}
	var out []Regression
	for _, x := range c.Comparisons {
		same, text := 1.0, "is "+unit.Ratio(x.Ratio)+" of what it was"
		if x.Difference {
			same, text = 0, "changed by "+metrics.Say(x.Metric, x.Ratio)
		}
		bad := better[x.Metric] == record.Higher && x.Ratio < same || better[x.Metric] == record.Lower &&
			x.Ratio > same
		if bad && (x.Verdict == "different" || x.Verdict == "confounded") {
			out = append(out, Regression{x.Factors, x.Metric, metrics.Label(x.Metric) + " " + text})
		}
	}
	return out
}

// numbers are the values of a run's metrics: cell or path → metric → block.
func numbers(d *Document) map[string]map[string]map[int]float64 {
	out := map[string]map[string]map[int]float64{}
	for _, t := range d.Trials {
		if t.Kind == record.RowVerify {
			continue
		}
		for _, key := range []string{t.Factors.Key(), d.Path(t.Factors).Key()} {
			for name, v := range t.Metrics {
				if out[key] == nil {
					out[key] = map[string]map[int]float64{}
				}
				if out[key][name] == nil {
					out[key][name] = map[int]float64{}
				}
				out[key][name][t.Block] = v
			}
		}
	}
	return out
}

// runWords says in words what a comparison of runs found.
func runWords(c *RunComparison) []string {
	if len(c.Comparisons) == 0 {
		return []string{"The two runs have no cell in common that both measured."}
	}
	counts := map[string]int{}
	for _, x := range c.Comparisons {
		if x.Metric == metrics.Goodput {
			counts[x.Verdict]++
		}
	}
	var parts []string
	for _, v := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%d %s", counts[v], v))
	}
	var out []string
	if n := len(c.Regressions); n > 0 {
		out = append(out, fmt.Sprintf("Worse in the second run, or lost: %d.", n))
	}
	if len(parts) > 0 {
		out = append(out, "Goodput in the cells that both runs measured: "+strings.Join(parts, ", ")+".")
	}
	switch causes := causesOf(c.Changes); len(causes) {
	case 0:
		out = append(out, "Nothing that was recorded differs between the runs: what differs in the results "+
			"is chance, or something that was not recorded.")
	case 1:
		out = append(out, "One recorded thing differs between the runs: "+causes[0]+".")
	default:
		out = append(out, fmt.Sprintf("%d recorded things differ between the runs, so no difference of "+
			"results can be put down to one of them.", len(causes)))
	}
	return out
}
