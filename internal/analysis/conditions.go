package analysis

import (
	"fmt"
	"math"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/comparison"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/evidence"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

// watched lists the conditions that each trial records. stem is the metric's name without the node. least is
// the smallest relevant difference between the medians of two runs, in the metric's unit or, if ratio is set,
// as a share.
var watched = [...]struct {
	stem  string
	least float64
	ratio bool
	say   func(float64) string
}{
	{metrics.ForeignRatio, .05, false, func(x float64) string { return unit.Significant(x, 2) + " cores" }},
	{metrics.StealRatio, .01, false, unit.Percent},
	{metrics.Temperature, 5, false, func(x float64) string { return unit.Significant(x, 3) + " °C" }},
	{"loop_rate_hz", .02, true, func(x float64) string { return metrics.Say("host_loop_rate_hz", x) }},
}

// watchedChanges returns the recorded conditions, such as other load, temperature and clock, that differ
// between two runs by more than they vary within each run. Each may be the cause of any difference in the
// results.
func watchedChanges(a, b *Document) []Change {
	var out []Change
	for _, node := range []string{record.HostNode, "router", "client", "server"} {
		for _, w := range watched {
			name := node + "_" + w.stem
			x := ofTrials(a, name)
			y := ofTrials(b, name)
			if len(x) == 0 || len(y) == 0 {
				continue
			}

			left := x[len(x)/2]
			right := y[len(y)/2]
			least := w.least
			if w.ratio {
				least *= max(left, right)
			}

			apart := outside(left, y) && outside(right, x) || shifted(a, b, name)
			if math.Abs(left-right) > least && apart {
				out = append(out, Change{"condition", metrics.Label(name), rangeOf(x, w.say),
					rangeOf(y, w.say), true})
			}
		}
	}
	return out
}

// shifted reports whether a condition differs between two runs by more than chance explains. It compares the
// medians of the runs' blocks. The values of single trials may still overlap.
func shifted(a, b *Document, metric string) bool {
	_, low, high, _, ok := statistics.Shift(byBlock(a, metric), byBlock(b, metric))
	return ok && (low > 0 || high < 0)
}

// byBlock returns the medians of a metric over the trials of each block.
func byBlock(d *Document, metric string) []float64 {
	blocks := map[int][]float64{}
	for _, t := range d.Trials {
		if v, ok := t.Metrics[metric]; ok && t.OfCell() {
			blocks[t.Block] = append(blocks[t.Block], v)
		}
	}

	var out []float64
	for _, values := range blocks {
		out = append(out, statistics.Median(values))
	}

	return out
}

func outside(v float64, sorted []float64) bool { return v < sorted[0] || v > sorted[len(sorted)-1] }

// ofTrials returns the values of a metric in the trials of a run's cells, in ascending order.
func ofTrials(d *Document, metric string) []float64 {
	var out []float64
	for _, t := range d.Trials {
		if v, ok := t.Metrics[metric]; ok && t.OfCell() {
			out = append(out, v)
		}
	}

	slices.Sort(out)
	return out
}

func rangeOf(sorted []float64, say func(float64) string) string {
	low := say(sorted[0])
	high := say(sorted[len(sorted)-1])
	if low == high {
		return low
	}

	return fmt.Sprintf("%s to %s, median %s", low, high, say(sorted[len(sorted)/2]))
}

// addSides adds the values of both runs, with their grades, to each comparison.
func (c *RunComparison) addSides(a, b *Document) {
	first := a.ByKey()
	second := b.ByKey()
	for i := range c.Comparisons {
		x := &c.Comparisons[i]
		one := first[x.Factors.Key()]
		two := second[x.Factors.Key()]
		if one == nil || two == nil {
			continue
		}

		if x.GradeA, x.GradeB = one.Grade, two.Grade; comparison.OfPath(x.Metric) {
			x.GradeA = a.gradeIdle(x.Factors)
			x.GradeB = b.gradeIdle(x.Factors)
		}

		if v, ok := one.Metrics[x.Metric]; ok {
			x.A = new(v.Median)
		}

		if v, ok := two.Metrics[x.Metric]; ok {
			x.B = new(v.Median)
		}
	}
}

// gradeIdle returns the grade of the idle measurements on a cell's path. Doubts about the loads on the path
// do not affect it.
func (d *Document) gradeIdle(f record.Factors) (grade string) {
	path := d.Run.Path(f).Key()
	for _, t := range d.Trials {
		if t.Kind != record.RowIdle || t.Grade == evidence.GradeFailed ||
			d.Run.Path(t.Factors).Key() != path {
			continue
		}

		if grade != evidence.GradeSuspect {
			grade = t.Grade
		}
	}
	return grade
}
