package trial

import (
	"fmt"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/plan"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// shareOf is the load, in payload bits per second, of a cell that takes a
// share of a rate which another finds: of the median of what arrived in that
// one's trials so far. A share of it is below what the path carries only as
// far as the generator, flat out, was not slower than the path.
func (c *Campaign) shareOf(found plan.Found) (float64, error) {
	var rates []float64
	for i := range c.trials {
		t := &c.trials[i]
		if t.Row.Kind != record.RowLoad || t.Status != record.TrialOK || t.Row.Cell() != found.Of.Key() {
			continue
		}
		var e record.Event
		summarise(&e, t)
		if e.Rate > 0 {
			rates = append(rates, e.Rate)
		}
	}
	if len(rates) == 0 {
		return 0, &notFound{found.Of}
	}
	return found.Share * analysis.Median(rates), nil
}

// notFound says that the cell which was to find a rate has found none.
type notFound struct{ of record.Factors }

func (e *notFound) Error() string {
	return fmt.Sprintf("no rate was found: no trial of %s has ended well so far", e.of.Key())
}

// Hint says what to look at.
func (e *notFound) Hint() string { return "the failed trials of that cell say why" }
