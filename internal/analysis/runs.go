package analysis

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/comparison"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

const comparisonFormat = "chokepoint-comparison/1"

// RunComparison compares run B with run A. Runs made at different times are not paired, so anything that
// changed between them may be the cause of any difference.
type RunComparison struct {
	Format      string                  `json:"format"`
	A           RunHead                 `json:"a"`
	B           RunHead                 `json:"b"`
	Summary     []string                `json:"summary"`
	Comparisons []comparison.Comparison `json:"comparisons"`      // ratios B ÷ A
	Regressions []Regression            `json:"regressions"`      // results that are worse in B, or missing
	Changes     []Change                `json:"changes"`          // other differences between the runs
	OnlyA       []record.Factors        `json:"only_a,omitempty"` // cells that only A measured
	OnlyB       []record.Factors        `json:"only_b,omitempty"`
	Metrics     []record.Metric         `json:"metrics"`

	SkippedB []record.Skipped `json:"-"` // cells that B skipped, with the reasons
}

// LossWords explains why the second run lacks a cell of OnlyA.
func (c *RunComparison) LossWords(f record.Factors) string {
	for _, s := range c.SkippedB {
		if s.Factors.Key() == f.Key() {
			return "the second run skipped it: " + s.Reason
		}
	}
	return "the second run has lost it"
}

// Change is a difference between two runs. Cause reports whether the change may explain different results.
type Change struct {
	Kind  string `json:"kind"` // "environment", "condition", "setting", "counter", "version", "plan", "lab"
	Name  string `json:"name"`
	A     string `json:"a"`
	B     string `json:"b"`
	Cause bool   `json:"cause"`
}

// Regression is a cell that is worse in the second run, or that lacks a number there.
type Regression struct {
	Factors record.Factors `json:"factors"`
	Metric  string         `json:"metric,omitempty"` // absent if the regression concerns the whole cell
	Text    string         `json:"text"`
	// Suspect reports that one of the two numbers is in doubt. It is never set if one run lacks the cell.
	Suspect bool `json:"suspect,omitempty"`
}

// CompareRuns matches the cells of two runs by their factors and compares the metrics that both have. The
// ratio is the Hodges–Lehmann shift of the logarithms, with the interval that inverts the Mann–Whitney test.
// All comparisons form one family (see RunsTest). With fewer than six trials on either side, there is no
// verdict.
func CompareRuns(a, b *Document) *RunComparison {
	c := &RunComparison{
		Format:      comparisonFormat,
		A:           a.Run,
		B:           b.Run,
		Changes:     changes(a, b),
		Comparisons: []comparison.Comparison{},
		Regressions: []Regression{},
		SkippedB:    b.Skipped,
	}
	theirs := b.ByKey()
	var matched []record.Factors
	for i := range a.Cells {
		mine := &a.Cells[i]
		key := mine.Factors.Key()
		other := theirs[key]
		switch {
		case other != nil:
			c.Regressions = append(c.Regressions, lost(mine, other)...)
			delete(theirs, key)
			matched = append(matched, mine.Factors)
		case mine.Runs > 0:
			c.OnlyA = append(c.OnlyA, mine.Factors)
		}
	}

	for _, other := range b.Cells {
		if theirs[other.Factors.Key()] != nil && other.Runs > 0 {
			c.OnlyB = append(c.OnlyB, other.Factors)
		}
	}

	c.Comparisons = comparison.OfRuns(matched, comparison.Run{Values: numbers(a), Path: a.Run.Path},
		comparison.Run{Values: numbers(b), Path: b.Run.Path}, causesOf(c.Changes))
	c.addSides(a, b)
	c.Metrics = metricsOf(c.Comparisons, slices.Concat(a.Metrics, b.Metrics))
	c.Regressions = append(c.Regressions, worse(c)...)
	c.Summary = runWords(c)
	return c
}

// metricsOf returns the declarations of the compared metrics.
func metricsOf(compared []comparison.Comparison, declared []record.Metric) []record.Metric {
	used := map[string]bool{}
	for _, x := range compared {
		used[x.Metric] = true
	}
	return pick(declared, used)
}

// ByKey returns the cells by the keys of their factors.
func (d *Document) ByKey() map[string]*Cell {
	out := map[string]*Cell{}
	for i := range d.Cells {
		out[d.Cells[i].Factors.Key()] = &d.Cells[i]
	}
	return out
}

// lost returns a regression for each number of a cell that the first run has and the second run lacks. The
// regression is suspect only if the cell is suspect in the second run, because a doubt about the first run's
// number does not matter.
func lost(a, b *Cell) []Regression {
	switch {
	case a.Runs == 0:
		return nil
	case b.Runs == 0:
		text := "it has no number in the second run"
		if len(b.Reasons) > 0 {
			text += ": " + b.Reasons[0].Text
		}

		return []Regression{{Factors: a.Factors, Text: text}}
	}

	var out []Regression
	for _, metric := range comparison.VitalMetrics {
		_, had := a.Metrics[metric]
		_, has := b.Metrics[metric]
		if had && !has {
			out = append(out, Regression{
				Factors: a.Factors,
				Metric:  metric,
				Text:    "the second run has no " + metrics.Label(metric) + prefixed(": ", b.Missing[metric]),
				Suspect: b.Grade == evidence.GradeSuspect && !comparison.OfPath(metric),
			})
		}
	}

	return out
}

// worse returns a regression for each comparison that found a change for the worse.
func worse(c *RunComparison) []Regression {
	better := map[string]string{}
	for _, m := range c.Metrics {
		better[m.Name] = m.Better
	}

	var out []Regression
	for _, x := range c.Comparisons {
		same := 1.0
		text := unit.Times(x.Ratio)
		if x.Difference {
			same = 0
			text = "changed by " + metrics.Say(x.Metric, x.Ratio)
		}

		bad := better[x.Metric] == record.Higher && x.Ratio < same || better[x.Metric] == record.Lower &&
			x.Ratio > same
		if bad && (x.Verdict == "different" || x.Verdict == "confounded") {
			out = append(out, Regression{x.Factors, x.Metric, metrics.Label(x.Metric) + " " + text,
				x.GradeA == evidence.GradeSuspect || x.GradeB == evidence.GradeSuspect})
		}
	}

	return out
}

// numbers returns the values of a run's metrics by the key of the cell or path, the metric, and the block.
func numbers(d *Document) map[string]map[string]map[int]float64 {
	out := map[string]map[string]map[int]float64{}
	for _, t := range d.Trials {
		if t.Kind == record.RowVerify {
			continue
		}

		for _, key := range []string{t.Factors.Key(), d.Run.Path(t.Factors).Key()} {
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

// runWords describes the results of a comparison of runs: first each metric that was compared, then other
// differences.
func runWords(c *RunComparison) []string {
	if len(c.Comparisons) == 0 {
		return []string{"The two runs have no cell in common that both measured."}
	}

	var out []string
	n := len(c.Regressions) + len(c.OnlyA)
	if n > 0 {
		out = append(out, fmt.Sprintf("Worse in the second run, or lost: %d.", n))
	}

	for _, g := range verdictCounts(c.Comparisons) {
		out = append(out, capital(strings.Join(g.metrics, ", "))+" in the cells that both runs measured: "+
			g.counts+".")
	}

	return append(out, causeWords(c))
}

// verdictCount holds counts of verdicts, and the metrics that have these counts.
type verdictCount struct {
	metrics []string
	counts  string
}

// verdictCounts groups metrics with the same counts of verdicts. Groups that contain a difference come first.
func verdictCounts(all []comparison.Comparison) []verdictCount {
	var out []verdictCount
	for _, metric := range comparison.ComparedMetrics {
		counts := map[string]int{}
		for _, x := range all {
			if x.Metric == metric {
				counts[x.Verdict]++
			}
		}

		var parts []string
		for _, verdict := range slices.Sorted(maps.Keys(counts)) {
			parts = append(parts, fmt.Sprintf("%d %s", counts[verdict], verdict))
		}

		if len(parts) == 0 {
			continue
		}

		text := strings.Join(parts, ", ")
		i := slices.IndexFunc(out, func(g verdictCount) bool { return g.counts == text })
		if i < 0 {
			i = len(out)
			out = append(out, verdictCount{counts: text})
		}

		out[i].metrics = append(out[i].metrics, metrics.Label(metric))
	}

	rank := func(g verdictCount) int {
		if strings.Contains(g.counts, statistics.Different) || strings.Contains(g.counts, "confounded") {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(out, func(a, b verdictCount) int { return rank(a) - rank(b) })
	return out
}

// causeWords describes the changes that may explain different results. It mentions chance only if no
// difference was found.
func causeWords(c *RunComparison) string {
	causes := causesOf(c.Changes)
	found := slices.ContainsFunc(c.Comparisons, func(x comparison.Comparison) bool {
		return x.Verdict == statistics.Different
	})
	foreign := slices.Concat(c.A.ImportedFrom, c.B.ImportedFrom)
	none := "No setting or condition that was recorded differs between the runs"
	if slices.ContainsFunc(c.Changes, func(x Change) bool { return x.Name == duration }) {
		none = "Apart from the duration of the trials, no setting or condition that was recorded differs " +
			"between the runs"
	}

	switch {
	case len(causes) > 1:
		return fmt.Sprintf("%d recorded things differ between the runs, so no difference of results can be "+
			"put down to one of them.", len(causes))
	case len(causes) == 1:
		return "One recorded thing differs between the runs: " + causes[0] + "."
	case len(foreign) > 0:
		return "What else differs between the runs is unknown: nothing of the testbed is recorded in what " +
			strings.Join(slices.Compact(slices.Sorted(slices.Values(foreign))), ", ") + " measured."
	case found:
		return none + ": the cause of the difference was not recorded."
	}

	return none + ", and no difference of the results was found that chance does not explain."
}

// duration is the name of the change that describes the length of trials.
const duration = "duration"

// Causes describes the differences between two runs that may explain different results. If the trials of a
// run were not read, it includes only the differences known before the first trial.
func Causes(a, b *Document) []string { return causesOf(changes(a, b)) }

// changes returns all differences between the runs, except factors and results.
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
	if a.Run.Version == b.Run.Version { // two versions always have different hashes
		add("version", "hash of the program", a.Run.BinaryHash, b.Run.BinaryHash, true)
	}

	add("plan", "name", a.Run.Plan, b.Run.Plan, false)
	window := a.Run.Method.Duration
	other := b.Run.Method.Duration
	searches := a.Run.Method.Search != nil || b.Run.Method.Search != nil // searches have their own durations
	if window > 0 && other > 0 && !searches {                            // 0 means that it was not recorded
		add("plan", duration, window.String(), other.String(), max(window, other) >= 2*min(window, other))
	}

	theirs := planFacts(b)
	for i, mine := range planFacts(a) {
		add("plan", mine[0], mine[1], theirs[i][1], true)
	}

	for _, name := range keys(a.Conditions, b.Conditions) {
		add("condition", name, a.Conditions[name], b.Conditions[name], true)
	}

	left := nodeFacts(a)
	right := nodeFacts(b)
	for _, name := range keys(left) {
		other, both := right[name]
		if both {
			add("environment", name, left[name], other, true)
		}
	}

	first := a.Run.Device
	second := b.Run.Device
	if first != "" && second != "" { // devices named by fingerprints are compared by their facts
		add("environment", "device", first, second, !a.foundDevice() || !b.foundDevice())
	}

	one := a.Run.Meter
	two := b.Run.Meter
	if one != nil && two != nil {
		add("environment", "meter", one.At, two.At, false)
	}

	out = append(out, watchedChanges(a, b)...)
	out = append(out, sampledChanges(a, b)...)
	out = append(out, environmentChanges(a.Environment, b.Environment)...)
	left = resolved(a)
	right = resolved(b)
	for _, name := range keys(left, right) {
		add("environment", name, cmp.Or(left[name], "unknown"), cmp.Or(right[name], "unknown"), true)
	}

	return out
}

// foundDevice reports whether the run's device is named by a fingerprint of its facts, which are compared
// anyway.
func (d *Document) foundDevice() bool {
	return slices.ContainsFunc(d.Environment, func(e record.Environment) bool {
		return d.Run.Device == record.DeviceOf(e.Facts, true) ||
			d.Run.Device == record.DeviceOf(e.Facts, false)
	})
}

// planFacts returns the names and values of the plan's settings for measuring, except the length of trials.
func planFacts(d *Document) [][2]string {
	method := d.Run.Method
	measure := d.Run.Measure
	return [][2]string{
		{"warmup", method.Warmup.String()},
		{"cooldown", method.Cooldown.String()},
		{"idle", method.Idle.String()},
		{"order", method.Order},
		{"latency_idle", measure.LatencyIdle},
		{"latency_loaded", fmt.Sprint(measure.LatencyLoaded)},
		{"probe_interval", measure.ProbeInterval.String()},
		{"verify", verified(measure)},
		{"telemetry", fmt.Sprint(measure.Telemetry)},
	}
}

// nodeFacts describes how each node of a run was controlled and configured.
func nodeFacts(d *Document) map[string]string {
	out := map[string]string{}
	for _, n := range d.Nodes {
		for _, f := range [...][2]string{{"driven by", n.Driven}, {"CPUs", n.CPUs}, {"settings", n.Fixed}} {
			if f[1] != "" {
				out[f[0]+" on "+n.Name] = f[1]
			}
		}
	}
	return out
}

// environmentChanges compares the facts of two runs node by node. If only one run recorded a fact, the fact
// is unknown in the other run.
func environmentChanges(a, b []record.Environment) []Change {
	facts := func(list []record.Environment) map[string]map[string]string {
		m := map[string]map[string]string{}
		for _, e := range list {
			m[e.Node] = maps.Clone(e.Facts)
		}
		return m
	}
	left := facts(a)
	right := facts(b)
	for _, x := range a {
		for _, y := range b {
			if x.Node == y.Node && left[x.Node] != nil && right[x.Node] != nil {
				addInventories(left[x.Node], right[x.Node], x.Inventory, y.Inventory)
			}
		}
	}

	// A change that occurs on several nodes of a machine is listed once.
	seen := map[string]int{}
	var out []Change
	if x, y := strings.Join(keys(left), ", "), strings.Join(keys(right), ", "); x != y && x != "" && y != "" {
		out = append(out, Change{"environment", "nodes", x, y, true})
	}

	for _, node := range keys(left, right) {
		if left[node] == nil || right[node] == nil {
			continue // reported above
		}

		for _, name := range keys(left[node], right[node]) {
			x := known(left[node], name)
			y := known(right[node], name)
			if x == y || volatileFacts[name] {
				continue
			}

			key := name + "\x00" + x + "\x00" + y
			i, again := seen[key]
			if again {
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

// volatileFacts lists the facts that change from boot to boot or from run to run.
var volatileFacts = map[string]bool{"boot_id": true, "uptime": true, "hostname": true, "time": true}

// resolved returns, for each factor, all values to which the run resolved it.
func resolved(d *Document) map[string]string {
	values := map[string][]string{}
	for _, c := range d.Cells {
		for name, v := range c.Resolved {
			values[name] = once(values[name], v)
		}
	}

	out := map[string]string{}
	for name, list := range values {
		slices.Sort(list)
		out[name] = strings.Join(list, ", ")
	}

	return out
}

func causesOf(list []Change) []string {
	var out []string
	for _, c := range list {
		if c.Cause {
			out = append(out, fmt.Sprintf("%s: %s → %s", c.Name, cmp.Or(c.A, "none"), cmp.Or(c.B, "none")))
		}
	}

	slices.Sort(out)
	return out
}

// keys returns the keys of several maps, sorted and without duplicates.
func keys[V any](all ...map[string]V) []string {
	var names []string
	for _, m := range all {
		names = slices.AppendSeq(names, maps.Keys(m))
	}

	slices.Sort(names)
	return slices.Compact(names)
}

// verified describes which trials verify the content.
func verified(m record.Measure) string {
	if m.VerifyAll {
		return "all"
	}
	return strconv.FormatBool(m.Verify)
}
