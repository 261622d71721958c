package trial

import (
	"context"
	"fmt"
	"slices"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/search"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/statistics"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/validity"
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// maxSearchFailures is how many trials of a search may fail in a row before it is given up.
const maxSearchFailures = 3

// searchBounds is the hint where a search has none, or found nothing between them.
const searchBounds = "set method.search.min and method.search.max"

// search runs trials of a row until the search that the design asks for has ended. What follows is decided
// by the trials that are stored, so a search that was interrupted goes on where it was.
func (c *Campaign) search(ctx context.Context, row record.Row, out *Outcome) error {
	failures := 0
	for failures < maxSearchFailures {
		next, more, err := c.nextOfSearch(row)
		if err != nil {
			return c.refuse(ctx, row, err, out)
		}
		if !more {
			return nil
		}
		t, err := c.one(ctx, row, &next)
		if err != nil {
			return err
		}
		out.add(t)
		if failures++; t.Status != record.TrialFailed {
			failures = 0
		}
	}
	c.tell(record.Event{Event: "warning", Row: row.ID, Cell: row.Factors,
		Text: fmt.Sprintf("the search is given up: %d of its trials failed in a row", failures)})
	return nil
}

// nextOfSearch asks the search of a row for its next trial.
func (c *Campaign) nextOfSearch(row record.Row) (record.SearchTrial, bool, error) {
	interfaces := 1
	unit := search.SearchUnit(row.Factors)
	if factor.Direction.Is(row.Factors, factor.Both) && unit != record.UnitFlows {
		interfaces = 2
	}
	return search.NextOfSearch(c.Run.Design.Method, unit, validity.TesterRate(&c.Run, row.Factors),
		interfaces, c.searchOf(row), c.idleOf(row))
}

// searchOf are the trials that a row's search has had.
func (c *Campaign) searchOf(row record.Row) []*record.Trial {
	var trials []*record.Trial
	for i := range c.trials {
		if t := &c.trials[i]; t.Row.ID == row.ID && t.Search != nil {
			trials = append(trials, t)
		}
	}
	return trials
}

// searched says that the search of a row has ended.
func (c *Campaign) searched(row record.Row) bool {
	_, more, err := c.nextOfSearch(row)
	return !more && err == nil
}

// idleOf is the latency of a row's path without load, from its block.
func (c *Campaign) idleOf(row record.Row) *record.Latency {
	path := c.Run.Design.Path(row.Factors).Key()
	var found *record.Latency
	for i := range c.trials {
		t := &c.trials[i]
		if t.Row.Kind == record.RowIdle && t.Row.Block == row.Block && t.Status == record.TrialOK &&
			c.Run.Design.Path(t.Row.Factors).Key() == path {
			found = t.Idle
		}
	}
	return found
}

// refuse keeps why a row cannot be searched, as a failed trial.
func (c *Campaign) refuse(ctx context.Context, row record.Row, why error, out *Outcome) error {
	t := c.newTrial(row, c.attempt(row), nil)
	t.Ended, t.Status = host.Monotonic(), record.TrialFailed
	t.Failure = &record.Failure{Phase: record.PhaseSetup, Error: why.Error(), Hint: searchBounds}
	out.add(t)
	return c.keep(ctx, row, t)
}

// asks turns what a search wants into the demand's load: the rate in bits of payload, of all streams and
// directions together.
func (d *demand) asks(s *record.SearchTrial) error {
	d.load.Duration = s.Duration
	if s.Unit == record.UnitFlows {
		d.load.ConnectionRate = s.Load
		return nil
	}
	bits := 1.0
	if s.Unit == record.UnitPackets {
		bits = 8 * (record.MeanSize(d.load.PacketSizes()) - float64(traffic.PacketOverhead(d.ip)))
	}
	if bits <= 0 {
		return fmt.Errorf("search for a rate: a packet of %d bytes has no payload", d.load.PacketSize)
	}
	d.load.RateBps = s.Load * float64(s.Interfaces) * bits
	if s.Test == record.TestBackToBack {
		d.load.Warmup = 0 // a queue must be empty before a burst
	}
	return nil
}

// shareOf is the load, in payload bits per second, of a cell that takes a share of a rate which another
// finds: of the median of what its searches found so far; or, without a search, of what arrived in its
// trials. A share of the latter is below what the path carries only as far as the generator, flat out, was
// not slower than the path.
func (c *Campaign) shareOf(found factor.Found) (float64, error) {
	var rates []float64
	rows := map[string]bool{} // searched ones
	for i := range c.trials {
		t := &c.trials[i]
		if t.Search == nil || t.Status != record.TrialOK || t.Row.Cell() != found.Of.Key() || rows[t.Row.ID] {
			continue
		}
		rows[t.Row.ID] = true
		if bps, ok := search.FoundRate(c.Run.Design.Method, c.searchOf(t.Row), c.idleOf(t.Row)); ok {
			rates = append(rates, bps)
		}
	}
	if len(rows) == 0 {
		rates = slices.DeleteFunc(slices.Clone(c.rates[found.Of.Key()]),
			func(bps float64) bool { return bps == 0 })
	}
	if len(rates) == 0 {
		if len(rows) > 0 {
			return 0, check.WithHint(fmt.Errorf("no rate was found: no search of %s has a lower bound so far",
				found.Of.Key()), searchBounds)
		}
		return 0, check.WithHint(fmt.Errorf("no rate was found: no trial of %s has ended well so far",
			found.Of.Key()), "the failed trials of that cell say why")
	}
	return found.Share * statistics.Median(rates), nil
}
