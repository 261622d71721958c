package analysis

import (
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/diagnosis"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
)

// oneCause replaces the diagnosis "random loss" of a cell with a policer or rule that was found on the same
// path in the same direction, either in another cell or by the diagnosis from both ends.
func (d *Document) oneCause() {
	type way struct{ path, direction string }
	of := func(c *Cell) way { return way{d.Run.Path(c.Factors).Key(), factor.Direction.Of(c.Factors)} }
	found := map[way]diagnosis.Cause{}
	where := map[way]string{}
	most := map[way]float64{}
	for _, p := range d.Paths {
		for i := range p.Directions {
			x := &p.Directions[i]
			if drops(&x.Diagnosis) {
				at := way{p.Factors.Key(), x.Direction}
				found[at] = x.Causes[0]
				where[at] = "the path"
			}
		}
	}

	for i := range d.Cells {
		c := &d.Cells[i]
		at := of(c)
		most[at] = max(most[at], c.Metrics[metrics.Goodput].Median)
		if c.Diagnosis != nil && drops(c.Diagnosis) {
			found[at] = c.Diagnosis.Causes[0]
			where[at] = c.Label
		}
	}

	for i := range d.Cells {
		c := &d.Cells[i]
		cause, known := found[of(c)]
		if known && c.Diagnosis != nil && !below(c, .9*most[of(c)]) {
			c.Diagnosis.LossIsOf(cause, where[of(c)])
		}
	}
}

// drops reports whether a diagnosis names a policer or a rule that drops packets.
func drops(d *diagnosis.Diagnosis) bool {
	return d.Named() && slices.Contains([]string{diagnosis.Policer, diagnosis.RuleDrop}, d.Class)
}

// below reports whether the load of a cell has a set rate that is lower than bps.
func below(c *Cell, bps float64) bool {
	for _, f := range []factor.Name{factor.Rate, factor.Pacing} {
		asked := f.Bitrate(c.Factors)
		if asked > 0 && asked < bps {
			return true
		}
	}
	return false
}
