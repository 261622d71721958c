package trial

import (
	"context"
	"fmt"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// maxSearchFailures is the number of consecutive failed trials after which a search gives up.
const maxSearchFailures = 3

// search runs trials of a row until the row's search has ended. The stored trials determine the next
// trial, so an interrupted search continues where it stopped.
func (c *Campaign) search(ctx context.Context, row record.Row, out *Outcome) error {
	failures := 0
	for failures < maxSearchFailures {
		next, more, err := c.interim.Next(row)
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

	c.tell(record.Event{
		Event: "warning",
		Row:   row.ID,
		Cell:  row.Factors,
		Text:  fmt.Sprintf("the search is given up: %d of its trials failed in a row", failures),
	})
	return nil
}

// searched reports whether the search of a row has ended.
func (c *Campaign) searched(row record.Row) bool {
	_, more, err := c.interim.Next(row)
	return !more && err == nil
}

// refuse stores a failed trial with the reason why a row cannot be searched.
func (c *Campaign) refuse(ctx context.Context, row record.Row, why error, out *Outcome) error {
	t := c.newTrial(row, c.attempt(row), nil)
	t.Ended = host.Monotonic()
	t.Status = record.TrialFailed
	t.Failure = &record.Failure{
		Phase: record.PhaseSetup,
		Error: why.Error(),
		Hint:  "set method.search.min and method.search.max",
	}
	out.add(t)
	return c.keep(ctx, row, t)
}

// asks sets the demand's load for a search's trial. A rate is in payload bit/s over all streams and
// directions.
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
		d.load.Warmup = 0 // because queues must be empty before a burst
	}

	return nil
}
