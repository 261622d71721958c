package analysis

import (
	"fmt"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/comparison"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// VersionBlock holds the runs of one block, in which the versions of a router were measured one after the
// other. Runs is in the order of the versions. It contains nil for a version that was not measured.
type VersionBlock struct {
	Block int // number of the block, from 1
	Runs  []*Document
}

// versionPair holds the runs of two versions in one block.
type versionPair struct {
	block    int
	old, new *Document
}

// pairsOf returns the runs of the first version and of the version with index other, for each block that
// measured both.
func pairsOf(blocks []VersionBlock, other int) (out []versionPair) {
	for _, b := range blocks {
		if b.Runs[0] != nil && b.Runs[other] != nil {
			out = append(out, versionPair{b.Block, b.Runs[0], b.Runs[other]})
		}
	}
	return out
}

// CompareVersions compares each later version of a router with the first one (see comparison.OfVersions).
// Each result has the form of a comparison of two runs, and is nil if no block measured both versions. Of the
// changes of the environment, a result lists those that every block recorded.
func CompareVersions(names []string, blocks []VersionBlock) []*RunComparison {
	var values [][]comparison.Versions
	for v := 1; v < len(names); v++ {
		values = append(values, versionValues(pairsOf(blocks, v)))
	}

	out := make([]*RunComparison, len(values))
	for i, compared := range comparison.OfVersions(values) {
		if pairs := pairsOf(blocks, i+1); len(pairs) > 0 {
			out[i] = compareVersions([2]string{names[0], names[i+1]}, pairs, compared)
		}
	}

	return out
}

func compareVersions(names [2]string, blocks []versionPair, compared []comparison.Comparison) *RunComparison {
	c := &RunComparison{
		Format:      comparisonFormat,
		A:           blocks[0].old.Run,
		B:           blocks[0].new.Run,
		Changes:     changes(blocks[0].old, blocks[0].new),
		Comparisons: compared,
		Regressions: []Regression{},
		Metrics:     metricsOf(compared, blocks[0].old.Metrics),
	}
	c.A.Name = names[0]
	c.B.Name = names[1]
	for _, b := range blocks[1:] {
		here := changes(b.old, b.new)
		c.Changes = slices.DeleteFunc(c.Changes, func(x Change) bool { return !slices.Contains(here, x) })
	}

	c.Changes = slices.DeleteFunc(c.Changes, func(x Change) bool { return x.Name == string(factor.Firmware) })
	for i := range c.Comparisons {
		x := &c.Comparisons[i]
		x.GradeA = usualGrade(blocks, x.Factors, false)
		x.GradeB = usualGrade(blocks, x.Factors, true)
	}

	c.Regressions = append(c.Regressions, worse(c)...)
	c.addLost(blocks)
	c.Summary = versionWords(c, blocks)
	return c
}

// VersionLabels returns the labels of all cells by the keys of their factors without firmware.
func VersionLabels(blocks []VersionBlock) map[string]string {
	labels := map[string]string{}
	for _, b := range blocks {
		for _, d := range b.Runs {
			if d == nil {
				continue
			}

			for key, c := range d.withoutFirmware() {
				labels[key] = c.Label
			}
		}
	}
	return labels
}

// withoutFirmware returns the cells by the keys of their factors without firmware, whose level is the
// version.
func (d *Document) withoutFirmware() map[string]*Cell {
	out := map[string]*Cell{}
	for i := range d.Cells {
		out[factor.Firmware.With(d.Cells[i].Factors, "").Key()] = &d.Cells[i]
	}
	return out
}

// ChangesSeen reports whether the blocks show a change of the version that further blocks must confirm.
func ChangesSeen(blocks []VersionBlock, version int) bool {
	return slices.ContainsFunc(versionValues(pairsOf(blocks, version)), comparison.Versions.Unrepeated)
}

// versionValues returns the values of both versions by cell and metric. The cells lack the factor firmware.
func versionValues(blocks []versionPair) (out []comparison.Versions) {
	at := map[string]int{}
	for _, b := range blocks {
		for side, d := range []*Document{b.old, b.new} {
			for _, cell := range d.Cells {
				if cell.Runs == 0 {
					continue
				}

				f := factor.Firmware.With(cell.Factors, "")
				for _, m := range comparison.VersionMetrics(f) {
					value, ok := cell.Metrics[m]
					if !ok {
						continue
					}

					key := f.Key() + "\x00" + m
					k, known := at[key]
					if !known {
						k = len(out)
						at[key] = k
						out = append(out, comparison.Versions{
							Factors: f,
							Metric:  m,
							Old:     map[int]float64{},
							New:     map[int]float64{},
						})
					}

					if side == 0 {
						out[k].Old[b.block] = value.Median
					} else {
						out[k].New[b.block] = value.Median
					}
				}
			}
		}
	}

	return out
}

// addLost adds a regression for each cell that has a number in a block of the old version but not in the same
// block of the new one.
func (c *RunComparison) addLost(blocks []versionPair) {
	var cells []record.Factors
	had := map[string]int{}
	lost := map[string]int{}
	why := map[string]string{}
	for _, b := range blocks {
		has := b.new.withoutFirmware()
		for key, c := range has {
			if c.Runs == 0 && len(c.Reasons) > 0 {
				why[key] = ": " + c.Reasons[0].Text
			}
		}

		for _, s := range b.new.Skipped {
			why[factor.Firmware.With(s.Factors, "").Key()] = ": " + s.Reason
		}

		for _, c := range b.old.Cells {
			if c.Runs == 0 {
				continue
			}

			f := factor.Firmware.With(c.Factors, "")
			key := f.Key()
			if had[key] == 0 {
				cells = append(cells, f)
			}

			had[key]++
			if has[key] == nil || has[key].Runs == 0 {
				lost[key]++
			}
		}
	}

	for _, f := range cells {
		key := f.Key()
		if lost[key] > 0 {
			c.Regressions = append(c.Regressions, Regression{Factors: f, Text: fmt.Sprintf(
				"the new version has no number in %d of %s%s", lost[key], unit.Count(had[key], "block"),
				why[key])})
		}
	}
}

// usualGrade returns the grade that a cell has in most blocks, for the new version if newer is set, otherwise
// for the old one.
func usualGrade(blocks []versionPair, f record.Factors, newer bool) string {
	suspect := 0
	all := 0
	for _, b := range blocks {
		d := b.old
		if newer {
			d = b.new
		}

		c := d.withoutFirmware()[f.Key()]
		if c == nil || c.Runs == 0 {
			continue
		}

		all++
		if c.Grade != evidence.GradeValid {
			suspect++
		}
	}

	if 2*suspect > all {
		return evidence.GradeSuspect
	}

	return evidence.GradeValid
}

// versionWords describes in one sentence what changed, and in another what else differs between the versions.
func versionWords(c *RunComparison, blocks []versionPair) []string {
	labels := map[string]string{}
	for _, b := range blocks {
		for key, c := range b.old.withoutFirmware() {
			labels[key] = c.Label
		}
	}

	worst := map[string]bool{}
	for _, r := range c.Regressions {
		worst[r.Factors.Key()+r.Metric] = true
	}

	var worse, better []string
	same := 0
	unclear := 0
	for _, x := range c.Comparisons {
		switch {
		case x.Verdict == statistics.Different && worst[x.Factors.Key()+x.Metric]:
			worse = append(worse, labels[x.Factors.Key()]+": "+changeWords(x))
		case x.Verdict == statistics.Different:
			better = append(better, labels[x.Factors.Key()]+": "+changeWords(x))
		case strings.HasPrefix(x.Verdict, statistics.Same):
			same++
		default:
			unclear++
		}
	}

	list := func(what string, changed []string) string {
		if len(changed) == 0 {
			return what + " in none"
		}
		return fmt.Sprintf("%s in %d (%s)", what, len(changed), strings.Join(changed, "; "))
	}
	text := fmt.Sprintf("%s against %s, %s: of %s it is %s, %s, the same within ±2 %% in %d; %d cannot tell.",
		c.B.Name, c.A.Name, unit.Count(len(blocks), "block"), unit.Count(len(c.Comparisons), "comparison"),
		list("worse", worse), list("better", better), same, unclear)
	lost := 0
	for _, r := range c.Regressions {
		if r.Metric == "" {
			lost++
		}
	}

	if lost > 0 {
		text += fmt.Sprintf(" Of %s the new version has no number in some blocks.", unit.Count(lost, "cell"))
	}

	causes := causesOf(c.Changes)
	if len(worse)+len(better) == 0 || len(causes) == 0 {
		return []string{text}
	}

	return []string{text, fmt.Sprintf("What differs between the versions in every block, and can be the "+
		"cause: %s.", strings.Join(causes, "; "))}
}

// changeWords describes a change with its interval.
func changeWords(x comparison.Comparison) string {
	percent := func(ratio float64) string {
		sign := "+"
		if ratio < 1 {
			sign = "−"
		}
		return sign + unit.Percent(max(ratio-1, 1-ratio))
	}
	return fmt.Sprintf("%s %s, %s to %s", metrics.Label(x.Metric), percent(x.Ratio), percent(x.Low),
		percent(x.High))
}
