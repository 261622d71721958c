package trial

import (
	"fmt"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/search"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// shareOf is the load, in payload bits per second, of a cell that takes a share of a rate which another
// finds: of the median of what its searches found so far; or, without a search, of what arrived in its
// trials. A share of the latter is below what the path carries only as far as the generator, flat out, was
// not slower than the path.
func (c *Campaign) shareOf(found factor.Found) (float64, error) {
	var rates []float64
	rows := map[string]bool{} // searched ones
	for i := range c.trials {
		t := &c.trials[i]
		if t.Row.Kind != record.RowLoad || t.Status != record.TrialOK || t.Row.Cell() != found.Of.Key() ||
			rows[t.Row.ID] {
			continue
		}
		if t.Search != nil {
			rows[t.Row.ID] = true
			if bps, ok := search.FoundRate(c.Run.Design.Method, c.searchOf(t.Row), c.idleOf(t.Row)); ok {
				rates = append(rates, bps)
			}
			continue
		}
		var e record.Event
		summarise(&e, t)
		if e.Rate > 0 {
			rates = append(rates, e.Rate)
		}
	}
	if len(rates) == 0 {
		return 0, &notFound{found.Of, len(rows) > 0}
	}
	return found.Share * statistics.Median(rates), nil
}

// notFound says that the cell which was to find a rate has found none.
type notFound struct {
	of       record.Factors
	searched bool
}

func (e *notFound) Error() string {
	if e.searched {
		return fmt.Sprintf("no rate was found: no search of %s has a lower bound so far", e.of.Key())
	}
	return fmt.Sprintf("no rate was found: no trial of %s has ended well so far", e.of.Key())
}

// Hint says what to look at.
func (e *notFound) Hint() string {
	if e.searched {
		return "set method.search.min and method.search.max"
	}
	return "the failed trials of that cell say why"
}
