package record

import (
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
)

// Path returns a cell without its loads. Cells with equal paths share a verification and an idle latency:
// their packets pass the same devices with the same settings.
func (p *Procedure) Path(cell Factors) Factors {
	path := Factors{}
	for name, level := range cell {
		if !slices.Contains(p.Loads, name) {
			path[name] = level
		}
	}
	return path
}

// DropDefaultNAT takes the level off of the factor nat, which is the default and says that nothing translates
// addresses, out of the cells where that is not so or not known, and out of what is said of them. The lists
// are changed in place.
func (d *Design) DropDefaultNAT(where func(Factors) bool) {
	without := func(cell Factors) Factors {
		if factor.NAT.Is(cell, factor.Off) && where(cell) {
			return factor.NAT.With(cell, "")
		}
		return cell
	}
	d.Baseline = without(d.Baseline)
	for i := range d.Cells {
		d.Cells[i] = without(d.Cells[i])
	}

	for i := range d.Requirements {
		d.Requirements[i].Where = without(d.Requirements[i].Where)
	}

	for i := range d.Skipped {
		d.Skipped[i].Factors = without(d.Skipped[i].Factors)
	}
}
