package analysis

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// RunComparison is two runs side by side: b against a. Runs made at different
// times are not paired, so everything that changed between them is a
// candidate cause of every difference.
type RunComparison struct {
	Format      string           `json:"format"`
	A           RunHead          `json:"a"`
	B           RunHead          `json:"b"`
	Summary     []string         `json:"summary"`
	Comparisons []Comparison     `json:"comparisons"` // ratio b ÷ a
	Changes     []Change         `json:"changes"`     // what differs between the runs
	OnlyA       []record.Factors `json:"only_a,omitempty"`
	OnlyB       []record.Factors `json:"only_b,omitempty"`
	Metrics     []record.Metric  `json:"metrics"`
}

// Change is one thing that differs between two runs. Cause says whether it
// can explain a difference of results.
type Change struct {
	Kind  string `json:"kind"` // "environment", "condition", "version", "plan", "lab"
	Name  string `json:"name"`
	A     string `json:"a"`
	B     string `json:"b"`
	Cause bool   `json:"cause"`
}

// CompareRuns matches the cells of two runs by their factors and compares the
// metrics that both have: the ratio of the medians' Hodges–Lehmann shift on
// logarithms, with the interval and the p-value of the exact Mann–Whitney
// test, corrected by Holm over each metric. Below six runs on either side
// there is no verdict.
func CompareRuns(a, b *Document) *RunComparison {
	c := &RunComparison{Format: record.Format, A: a.Run, B: b.Run, Changes: changes(a, b), Comparisons: []Comparison{}}
	causes := causesOf(c.Changes)
	theirs := map[string]*Cell{}
	for i := range b.Cells {
		theirs[b.Cells[i].Factors.Key()] = &b.Cells[i]
	}
	var matched [][2]*Cell
	for i := range a.Cells {
		key := a.Cells[i].Factors.Key()
		other, ok := theirs[key]
		if !ok {
			c.OnlyA = append(c.OnlyA, a.Cells[i].Factors)
			continue
		}
		delete(theirs, key)
		matched = append(matched, [2]*Cell{&a.Cells[i], other})
	}
	for i := range b.Cells {
		if _, left := theirs[b.Cells[i].Factors.Key()]; left {
			c.OnlyB = append(c.OnlyB, b.Cells[i].Factors)
		}
	}
	for _, m := range unionMetrics(a.Metrics, b.Metrics) {
		if family := compareUnpaired(matched, m, causes); len(family) > 0 {
			c.Comparisons = append(c.Comparisons, family...)
			c.Metrics = append(c.Metrics, m)
		}
	}
	c.Summary = runWords(c)
	return c
}

func unionMetrics(a, b []record.Metric) []record.Metric {
	seen := map[string]bool{}
	var out []record.Metric
	for _, m := range slices.Concat(a, b) {
		if !seen[m.Name] && m.Better != "" {
			seen[m.Name] = true
			out = append(out, m)
		}
	}
	return out
}

// compareUnpaired compares one metric in all matched cells. Ratios need
// values above zero; metrics that may be zero, such as drops, are left out
// where they are.
func compareUnpaired(matched [][2]*Cell, m record.Metric, causes []string) []Comparison {
	var out []Comparison
	var p []float64
	var tested []int
	for _, pair := range matched {
		a, okA := logsOf(pair[0], m.Name)
		b, okB := logsOf(pair[1], m.Name)
		if !okA || !okB {
			continue
		}
		c := Comparison{Metric: m.Name, Factors: pair[1].Factors, Against: pair[0].Factors,
			Name: "of the earlier run", N: min(len(a), len(b)), Interval: IntervalRange}
		shift, low, high, level, ok := Shift(a, b)
		c.Ratio = math.Exp(shift)
		if c.N >= MinInterval && ok {
			c.Low, c.High, c.Level, c.Interval = math.Exp(low), math.Exp(high), level, IntervalOrder
			tested = append(tested, len(out))
			p = append(p, MannWhitney(a, b))
		} else {
			c.Low, c.High = math.Exp(slices.Min(b)-slices.Max(a)), math.Exp(slices.Max(b)-slices.Min(a))
			if len(a) == 1 && len(b) == 1 {
				c.Interval = IntervalSingle
			}
		}
		out = append(out, c)
	}
	test := "Mann–Whitney U, exact"
	if len(p) > 1 {
		test += fmt.Sprintf("; Holm over %d cells", len(p))
	}
	for k, adjusted := range Holm(p) {
		out[tested[k]].PValue, out[tested[k]].Test = adjusted, test
	}
	for i := range out {
		c := &out[i]
		if c.Verdict = verdict(*c, SmallestRelevant); c.Verdict == "different" && len(causes) > 1 {
			c.Verdict, c.Confounders = "confounded", causes
		}
	}
	return out
}

func logsOf(c *Cell, metric string) ([]float64, bool) {
	v, ok := c.Metrics[metric]
	if !ok || len(v.Values) == 0 {
		return nil, false
	}
	logs := make([]float64, len(v.Values))
	for i, x := range v.Values {
		if !(x > 0) {
			return nil, false
		}
		logs[i] = math.Log(x)
	}
	return logs, true
}

// changes lists everything that differs between the runs and is not a factor.
func changes(a, b *Document) []Change {
	var out []Change
	add := func(kind, name, x, y string, cause bool) {
		if x != y {
			out = append(out, Change{kind, name, x, y, cause})
		}
	}
	add("lab", "lab", a.Run.Lab, b.Run.Lab, true)
	add("lab", "note", a.Run.LabNote, b.Run.LabNote, true)
	add("version", "chokepoint", a.Run.Version, b.Run.Version, true)
	add("plan", "name", a.Run.Plan, b.Run.Plan, false)
	add("plan", "duration", a.Run.Method.Duration.String(), b.Run.Method.Duration.String(), true)
	add("plan", "warmup", a.Run.Method.Warmup.String(), b.Run.Method.Warmup.String(), true)
	add("plan", "order", a.Run.Method.Order, b.Run.Method.Order, true)
	for _, name := range sortedKeys(union(a.Conditions, b.Conditions)) {
		add("condition", name, a.Conditions[name], b.Conditions[name], true)
	}
	out = append(out, environmentChanges(a.Environment, b.Environment)...)
	for _, name := range resolvedNames(a, b) {
		add("environment", name, resolvedOf(a, name), resolvedOf(b, name), true)
	}
	return out
}

// environmentChanges compares fingerprints node by node. A fact that is
// unknown on one side cannot be ruled out, and is listed as unknown.
func environmentChanges(a, b []record.Environment) []Change {
	facts := func(list []record.Environment) map[string]map[string]string {
		m := map[string]map[string]string{}
		for _, e := range list {
			m[e.Node] = e.Facts
		}
		return m
	}
	left, right := facts(a), facts(b)
	nodes := map[string]bool{}
	for n := range left {
		nodes[n] = true
	}
	for n := range right {
		nodes[n] = true
	}
	// The same change on many nodes of one machine is one change.
	seen := map[string]int{}
	var out []Change
	for _, node := range sortedKeys(nodes) {
		for _, name := range sortedKeys(union(left[node], right[node])) {
			x, y := known(left[node], name), known(right[node], name)
			if x == y || volatileFacts[name] {
				continue
			}
			key := name + "\x00" + x + "\x00" + y
			if i, again := seen[key]; again {
				out[i].Name += ", " + node
				continue
			}
			seen[key] = len(out)
			out = append(out, Change{"environment", name + " on " + node, x, y, true})
		}
	}
	return out
}

func known(facts map[string]string, name string) string {
	if v, ok := facts[name]; ok {
		return v
	}
	return "unknown"
}

// volatileFacts change from boot to boot or run to run by themselves.
var volatileFacts = map[string]bool{"boot_id": true, "uptime": true, "hostname": true, "time": true}

func resolvedNames(a, b *Document) []string {
	names := map[string]bool{}
	for _, d := range []*Document{a, b} {
		for i := range d.Cells {
			for n := range d.Cells[i].Resolved {
				names[n] = true
			}
		}
	}
	return sortedKeys(names)
}

// resolvedOf lists what a factor was resolved to anywhere in a run.
func resolvedOf(d *Document, name string) string {
	values := map[string]bool{}
	for i := range d.Cells {
		if v := d.Cells[i].Resolved[name]; v != "" {
			values[v] = true
		}
	}
	return strings.Join(sortedKeys(values), ", ")
}

func causesOf(list []Change) []string {
	var out []string
	for _, c := range list {
		if c.Cause {
			out = append(out, fmt.Sprintf("%s: %s → %s", c.Name, orNone(c.A), orNone(c.B)))
		}
	}
	sort.Strings(out)
	return out
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// runWords says in words what a comparison of runs found.
func runWords(c *RunComparison) []string {
	if len(c.Comparisons) == 0 {
		return []string{"The two runs have no cell in common that both measured."}
	}
	counts := map[string]int{}
	for _, x := range c.Comparisons {
		if x.Metric == goodput {
			counts[x.Verdict]++
		}
	}
	var parts []string
	for _, v := range sortedKeys(counts) {
		parts = append(parts, fmt.Sprintf("%d %s", counts[v], v))
	}
	var out []string
	if len(parts) > 0 {
		out = append(out, "Goodput in the cells that both runs measured: "+strings.Join(parts, ", ")+".")
	}
	switch causes := causesOf(c.Changes); len(causes) {
	case 0:
		out = append(out, "Nothing that was recorded differs between the runs: what differs in the results is chance, or something that was not recorded.")
	case 1:
		out = append(out, "One recorded thing differs between the runs: "+causes[0]+".")
	default:
		out = append(out, fmt.Sprintf("%d recorded things differ between the runs, so no difference of results can be put down to one of them.", len(causes)))
	}
	return out
}
