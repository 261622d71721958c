package plan

import (
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// dropUnfound skips the cells whose load is a share of a rate that no cell of the plan finds.
func (e *expansion) dropUnfound() {
	have := map[string]bool{}
	for _, c := range e.cells {
		have[c.Key()] = true
	}
	e.cells = slices.DeleteFunc(e.cells, func(c factor.Cell) bool {
		found, ok := factor.FoundOf(c)
		if !ok || have[found.Of.Key()] {
			return false
		}
		e.skipped = append(e.skipped, record.Skipped{Factors: c,
			Reason: "no cell that is the same otherwise goes as fast as it can (rate: flat, or no pacing), " +
				"so that there is no rate to take a share of"})
		return true
	})
}

// findersFirst puts cells whose load is a share of a rate to be found behind the others of their group, so
// that each block finds before it takes a share.
func findersFirst(group []factor.Cell) []factor.Cell {
	var first, last []factor.Cell
	for _, c := range group {
		if _, ok := factor.FoundOf(c); ok {
			last = append(last, c)
		} else {
			first = append(first, c)
		}
	}
	return append(first, last...)
}
