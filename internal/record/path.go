package record

import "slices"

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
