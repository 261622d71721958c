package analysis

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/comparison"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

const bisectionFormat = "chokepoint-bisection/1"

// Outcomes of a bisection whose ends do not differ by a ratio. Package comparison has the other outcomes.
const (
	BisectSame   = "same"
	BisectChance = "not reproducible"
	BisectLost   = "no number at the bad end"
)

// Values of BisectVersion.Side.
const (
	sideGood    = "good"
	sideBad     = "bad"
	sideBetween = "between"
	sideUnclear = "unclear"
)

// Bisection holds the answer of a bisection and its log: the versions, oldest first, with the measurements of
// each version.
type Bisection struct {
	Format   string          `json:"format"`
	ID       string          `json:"id"`
	Outcome  string          `json:"outcome,omitempty"` // absent if the bisection has no answer yet
	Summary  []string        `json:"summary"`
	Culprits []string        `json:"culprits,omitempty"`    // versions that may have changed the result
	P        float64         `json:"probability,omitempty"` // probability that the cause is one of Culprits
	Factors  record.Factors  `json:"factors,omitempty"`     // factors of the cell that the bisection follows
	Cell     string          `json:"cell,omitempty"`
	Metric   string          `json:"metric,omitempty"`
	Boots    int             `json:"boots"` // number of boots after the blocks of the ends
	Versions []BisectVersion `json:"versions"`
	Ends     *RunComparison  `json:"ends,omitempty"` // comparison of the last version with the first
	step     *comparison.Comparison
	last     comparison.BisectStep
	why      []string // verdicts on the ends, which explain why no comparison shows a step
}

// BisectVersion is one version in the list that is bisected.
type BisectVersion struct {
	Name string `json:"name"`
	// Side is "good", "bad", "between" or "unclear", according to the measurements. It is absent if the
	// version was not measured.
	Side    string  `json:"side,omitempty"`
	Boots   int     `json:"boots,omitempty"`
	Ratio   float64 `json:"ratio,omitempty"` // ratio to the good end; Low and High are its 95 % interval
	Low     float64 `json:"low,omitempty"`
	High    float64 `json:"high,omitempty"`
	Suspect int     `json:"suspect,omitempty"` // number of runs in which the cell is suspect
	Skipped string  `json:"skipped,omitempty"` // reason why the version cannot be measured
}

// Bisect computes the state of a bisection from its blocks: first the blocks that measured both ends, then
// blocks with a single run. Among the cells whose label wanted accepts, it follows the cell and metric that
// changed most clearly. skipped maps each version that cannot be measured to the reason. Bisect adds to it
// the versions that have no number for the cell.
func Bisect(id string, names []string, blocks []VersionBlock, wanted func(label string) bool,
	skipped map[int]string) *Bisection {
	x := &Bisection{Format: bisectionFormat, ID: id, Summary: []string{}}
	last := len(names) - 1
	labels := VersionLabels(blocks)
	pairs := pairsOf(blocks, last)
	if len(pairs) > 0 {
		compared := comparison.OfVersions([][]comparison.Versions{versionValues(pairs)})[0]
		x.Ends = compareVersions([2]string{names[0], names[last]}, pairs, compared)
		if endsMeasured(blocks, pairs, last) {
			x.choose(labels, wanted)
			x.findLost(pairs, labels, wanted)
		}
	}

	sides := map[int]comparison.Side{}
	if x.step != nil {
		b := comparison.Bisect{Versions: len(names), Runs: x.runs(blocks, skipped), Unusable: skipped}
		x.last = b.Next()
		x.Outcome = x.last.Outcome
		for _, s := range b.Sides() {
			sides[s.Version] = s
		}
	}

	boots := map[int]int{}
	suspect := map[int]int{}
	for _, b := range blocks {
		for v, d := range b.Runs {
			if d == nil {
				continue
			}

			boots[v]++
			if c := x.cellOf(d); x.step != nil && c != nil && c.Grade != evidence.GradeValid {
				suspect[v]++
			}

			if b.Block > 2*comparison.VersionBlocks {
				x.Boots++
			}
		}
	}

	x.repeatSuspect(len(names), boots, suspect, skipped)
	for v, name := range names {
		row := BisectVersion{Name: name, Boots: boots[v], Suspect: suspect[v], Skipped: skipped[v]}
		s, searched := sides[v]
		if searched {
			row.Ratio = s.Ratio
			row.Low = s.Low
			row.High = s.High
			row.Side = sideOf(s.Share)
		}

		switch {
		case x.step == nil:
		case v == 0:
			row.Side = sideGood
		case v == last:
			row.Side = sideBad
			row.Ratio = x.step.Ratio
			row.Low = x.step.Low
			row.High = x.step.High
		}

		x.Versions = append(x.Versions, row)
	}

	x.conclude()
	return x
}

// repeatSuspect requests a second run of a version whose only run is suspect, unless the version is skipped.
// The second run comes before another version is measured or an answer is given.
func (x *Bisection) repeatSuspect(versions int, boots, suspect map[int]int, skipped map[int]string) {
	for v := range versions {
		if skipped[v] == "" && boots[v] == 1 && suspect[v] == 1 {
			x.last = comparison.BisectStep{Measure: v}
			x.Outcome = ""
			return
		}
	}
}

// endsMeasured reports whether both ends were measured in enough blocks: VersionBlocks of them or, if the
// first blocks show a change, twice as many.
func endsMeasured(blocks []VersionBlock, pairs []versionPair, last int) bool {
	first := slices.DeleteFunc(slices.Clone(blocks), func(b VersionBlock) bool {
		return b.Block > comparison.VersionBlocks
	})
	enough := comparison.VersionBlocks
	if ChangesSeen(first, last) {
		enough *= 2
	}

	return len(pairs) >= enough
}

// sideOf returns the side of a version, given its expected share of the step.
func sideOf(share float64) string {
	const clear = .05
	switch {
	case share < clear:
		return sideGood
	case share > 1-clear:
		return sideBad
	case share > .25 && share < .75:
		return sideBetween
	}
	return sideUnclear
}

// choose selects the comparison of the ends that the bisection follows. This is the clearest difference: the
// largest change relative to the width of its interval. If no comparison differs, choose sets the outcome.
func (x *Bisection) choose(labels map[string]string, wanted func(label string) bool) {
	most := 0.0
	same := 0
	other := 0
	for i, c := range x.Ends.Comparisons {
		label := labels[c.Factors.Key()]
		if !wanted(label) {
			continue
		}

		x.why = append(x.why, label+": "+changeWords(c)+": "+c.Verdict+prefixed(": ", c.Why))
		switch c.Verdict {
		case statistics.Different:
			width := max(math.Log(c.High/c.Low), 1e-9)
			// If several changes are equally clear apart from rounding, use the first, so that an interrupted
			// bisection continues with the same cell.
			if clear := math.Abs(math.Log(c.Ratio)) / width; clear > most*1.001 {
				most = clear
				x.step = &x.Ends.Comparisons[i]
			}
		case statistics.SameWithin:
			same++
		default:
			other++
		}
	}

	switch {
	case x.step != nil:
		x.Factors = x.step.Factors
		x.Metric = x.step.Metric
		x.Cell = labels[x.step.Factors.Key()]
	case other == 0 && same > 0:
		x.Outcome = BisectSame
	default:
		x.Outcome = BisectChance
	}
}

// findLost searches for a cell that has a number in every block of the good end, but none, or 0, in every
// block of the bad end. No ratio shows such a loss, although it is worse than any step.
func (x *Bisection) findLost(pairs []versionPair, labels map[string]string, wanted func(label string) bool) {
	positive := func(values map[int]float64) (n int) {
		for _, value := range values {
			if value > 0 {
				n++
			}
		}
		return n
	}
	for _, v := range versionValues(pairs) {
		label := labels[v.Factors.Key()]
		zeros := len(v.New) > 0 && !slices.ContainsFunc(x.Ends.Metrics, func(m record.Metric) bool {
			return m.Name == v.Metric && m.Better == record.Higher
		}) // 0 is good for these metrics, such as the share of lost packets
		if wanted(label) && !zeros && positive(v.Old) == len(pairs) && positive(v.New) == 0 {
			x.Outcome = BisectLost
			x.step = nil
			x.Factors = v.Factors
			x.Metric = v.Metric
			x.Cell = label
			return
		}
	}
}

// runs returns, in order of time, the runs that have a number for the cell. If a run lacks the number, runs
// adds its version to skipped, unless the version is an end. It leaves out the runs of skipped versions.
func (x *Bisection) runs(blocks []VersionBlock, skipped map[int]string) (out []comparison.VersionRun) {
	for _, b := range blocks {
		ofEnds := b.Block <= 2*comparison.VersionBlocks
		for v, d := range b.Runs {
			end := v == 0 || v == len(b.Runs)-1
			if d == nil || ofEnds && !end {
				continue
			}

			if c := x.cellOf(d); c != nil {
				out = append(out, comparison.VersionRun{
					Version: v,
					Block:   b.Block,
					At:      d.Run.Started,
					Value:   c.Metrics[x.Metric].Median,
				})
			} else if !end && skipped[v] == "" {
				skipped[v] = "no number of this cell"
			}
		}
	}

	slices.SortStableFunc(out, func(a, b comparison.VersionRun) int {
		early := 2 * comparison.VersionBlocks
		return cmp.Or(cmp.Compare(max(a.Block, early), max(b.Block, early)), a.At.Compare(b.At))
	})
	return slices.DeleteFunc(out, func(r comparison.VersionRun) bool { return skipped[r.Version] != "" })
}

// cellOf returns the followed cell of a document, or nil if the document has no number for it.
func (x *Bisection) cellOf(d *Document) *Cell {
	c := d.withoutFirmware()[x.Factors.Key()]
	if c == nil || c.Runs == 0 || !(c.Metrics[x.Metric].Median > 0) {
		return nil
	}
	return c
}

// Next returns the version to measure next. ok is false if no further measurement is needed.
func (x *Bisection) Next() (version int, ok bool) {
	return x.last.Measure, x.Outcome == "" && x.step != nil
}

// conclude sets the culprits and the sentences of the summary.
func (x *Bisection) conclude() {
	if x.Ends == nil {
		return
	}

	x.Summary = append(x.Summary, x.Ends.Summary[0])
	say := func(format string, args ...any) { x.Summary = append(x.Summary, fmt.Sprintf(format, args...)) }
	good := x.Versions[0].Name
	bad := x.Versions[len(x.Versions)-1].Name
	what := metrics.Label(x.Metric) + " of " + x.Cell
	switch {
	case x.Outcome == "":
		return
	case x.Outcome == BisectLost:
		say("The %s has a number in every block of %s, and none or 0 in every block of %s. A search by "+
			"ratios cannot find the version that lost it.", what, good, bad)
		return
	case x.step == nil:
		x.Summary = append(x.Summary, x.why...)
		differ := "do not differ reproducibly"
		if x.Outcome == BisectSame {
			differ = "are the same"
		}

		say("The ends %s: nothing to look for.", differ)
		return
	}

	var suspect []string
	for _, v := range x.Versions {
		if v.Suspect > 0 {
			suspect = append(suspect, fmt.Sprintf("%d of %s of %s", v.Suspect, unit.Count(v.Boots, "run"),
				v.Name))
		}
	}

	if len(suspect) > 0 {
		say("Suspect: %s.", strings.Join(suspect, "; "))
	}

	first := x.last.First
	last := x.last.Last
	if x.Outcome == comparison.BisectTester {
		say("It is the tester: %s, measured again at the end, is no longer what it was before the search. "+
			"No version can be blamed.", good)
		return
	}

	x.P = x.last.P
	for v := first; v <= last; v++ {
		x.Culprits = append(x.Culprits, x.Versions[v].Name)
	}

	sure := fmt.Sprintf("(probability %s, %s after those of the ends)", unit.Percent(min(x.P, .999)),
		unit.Count(x.Boots, "boot"))
	switch x.Outcome {
	case comparison.BisectCulprit:
		if first == last {
			say("%s is the first version that changed the %s %s.", x.Culprits[0], what, sure)
		} else {
			say("The %s was changed by one of these versions %s; those before the last cannot be measured: "+
				"%s.", what, sure, strings.Join(x.Culprits, ", "))
		}

		say("Ratio to the good end: %s; %s.", x.Versions[first-1].words(), x.Versions[last].words())
	case comparison.BisectSeveral:
		say("No single culprit: %s lies between the ends %s. Bisect from %s to it, and from it to %s.",
			x.Culprits[0], sure, good, bad)
	default:
		say("Undecided: the runs that are allowed do not tell which of these %d versions changed the %s %s.",
			len(x.Culprits), what, sure)
	}
}

// words describes the ratio of a version to the good end.
func (v BisectVersion) words() string {
	return fmt.Sprintf("%s: ×%s (%s to %s)", v.Name, unit.Significant(v.Ratio, 4), unit.Significant(v.Low, 4),
		unit.Significant(v.High, 4))
}

// Worse reports whether the bisection has an answer and the cell is worse at the bad end than at the good
// end.
func (x *Bisection) Worse() bool {
	if x.Outcome == BisectLost {
		return true
	}

	return x.step != nil && x.Outcome != "" && x.Outcome != comparison.BisectTester &&
		slices.ContainsFunc(x.Ends.Regressions, func(r Regression) bool {
			return r.Metric == x.Metric && r.Factors.Key() == x.Factors.Key()
		})
}
