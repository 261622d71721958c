package record

import (
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
)

// Path returns a cell without its loads. Cells with equal paths share a path verification and an idle
// latency, because their packets pass through the same devices with the same settings.
func (p *Procedure) Path(cell Factors) Factors {
	path := Factors{}
	for name, level := range cell {
		if !slices.Contains(p.Loads, name) {
			path[name] = level
		}
	}
	return path
}

// DropDefaultNAT removes the level "off" of the NAT factor from the cells selected by where. For these cells,
// it is wrong or unknown that addresses are not translated. DropDefaultNAT also removes the level from
// Baseline, Requirements and Skipped. It modifies the lists in place.
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
