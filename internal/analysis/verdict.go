package analysis

import (
	"cmp"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/diagnosis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Verdict is the diagnosis of one cell, or the diagnosis that several cells have in common.
type Verdict struct {
	Class      string           `json:"class"`
	Text       string           `json:"text"` // one sentence; the label of the class if texts differ
	Cells      []record.Factors `json:"cells"`
	Labels     []string         `json:"labels"`     // labels of the cells
	Shown      int              `json:"shown"`      // index in Cells of the cell with the highest confidence
	Confidence [2]float64       `json:"confidence"` // lowest and highest confidence of the cells
}

// Verdicts groups the cells with the same diagnosis. The largest group comes first, and unknown causes come
// last.
func Verdicts(cells []Cell) []Verdict {
	type key struct{ class, node, element string }
	out := []Verdict{}
	index := map[key]int{}
	for i := range cells {
		c := &cells[i]
		d := c.Diagnosis
		if d == nil {
			continue
		}

		k := key{class: d.Class}
		if d.Named() {
			k.node = d.Causes[0].Node
			k.element = d.Causes[0].Element
		}

		at, seen := index[k]
		if !seen {
			at = len(out)
			index[k] = len(out)
			out = append(out, Verdict{
				Class:      d.Class,
				Text:       d.Text,
				Confidence: [2]float64{d.Confidence, d.Confidence},
			})
		}

		v := &out[at]
		v.Cells = append(v.Cells, c.Factors)
		v.Labels = append(v.Labels, c.Label)
		if d.Text != v.Text {
			v.Text = diagnosis.LabelOf(d.Class)
		}

		if v.Confidence[0] = min(v.Confidence[0], d.Confidence); d.Confidence > v.Confidence[1] {
			v.Confidence[1] = d.Confidence
			v.Shown = len(v.Cells) - 1
		}
	}

	rank := func(v Verdict) int {
		if v.Class == diagnosis.Unknown {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(out, func(a, b Verdict) int {
		return cmp.Or(rank(a)-rank(b), len(b.Cells)-len(a.Cells))
	})
	return out
}

// generatorShare returns the share of the load generator in the CPU time of a machine that also runs the
// router. It returns 0 if the share is unknown.
func generatorShare(run *record.Run, c *Cell) float64 {
	own, okOwn := c.Metrics[metrics.EngineCPU]
	rate, okRate := c.Metrics[metrics.Goodput]
	per, okPer := c.Metrics[metrics.GoodputPerCPU]
	window := run.Design.Method.Duration.Seconds()
	if !okOwn || !okRate || !okPer || per.Median <= 0 || rate.Median <= 0 || window <= 0 ||
		run.Near().CPUs != record.CPUsShared {
		return 0
	}

	share := own.Median / window / (rate.Median / per.Median)
	if share <= 1 {
		return share
	}

	return 0
}
