package record

import (
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
)

// olderLoads are the loads of runs whose design does not list them.
var olderLoads = []string{"streams", "direction", "protocol", "packet_size", "frame_size", "rate",
	"congestion", "engine", "copy"}

// Path returns a cell without its loads. Cells with equal paths share a verification and an idle latency:
// their packets pass the same devices with the same settings.
func (d *Design) Path(cell Factors) Factors { return PathOf(cell, d.Loads) }

// PathOf is Path by a design's list of loads.
func PathOf(cell Factors, loads []string) Factors {
	if loads == nil {
		loads = olderLoads
	}
	path := Factors{}
	for name, level := range cell {
		if !slices.Contains(loads, name) {
			path[name] = level
		}
	}
	return path
}

// UnsayNAT takes the level off of the factor nat, which is the default, out of the cells for which it is not
// true that nothing translates addresses, and out of what is said of them. The lists are changed in place.
func (d *Design) UnsayNAT(untrue func(Factors) bool) {
	unsaid := func(cell Factors) Factors {
		if factor.NAT.Is(cell, factor.Off) && untrue(cell) {
			return factor.NAT.With(cell, "")
		}
		return cell
	}
	d.Baseline = unsaid(d.Baseline)
	for i := range d.Cells {
		d.Cells[i] = unsaid(d.Cells[i])
	}
	for i := range d.Requirements {
		d.Requirements[i].Where = unsaid(d.Requirements[i].Where)
	}
	for i := range d.Skipped {
		d.Skipped[i].Factors = unsaid(d.Skipped[i].Factors)
	}
}
