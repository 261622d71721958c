package trial

import (
	"context"
	"sync"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/meter"
)

// meterWait bounds the wait for the first reading of the run's power meter.
const meterWait = 3 * time.Second

// startMeter reads the run's power meter, if it has one that can be read, until stop is called. Without a
// reading the run continues.
func (c *Campaign) startMeter(ctx context.Context) (stop func(), err error) {
	if c.Run.Meter == nil || c.Run.Meter.TypedIn() {
		return func() {}, nil
	}

	if c.meter, err = meter.Open(*c.Run.Meter, c.Run.Metered()); err != nil {
		return nil, err
	}

	ctx, cancel := context.WithCancel(ctx)
	var reading sync.WaitGroup
	reading.Go(func() { c.meter.Run(ctx) })
	why := c.meter.Ready(ctx, meterWait)
	if why != nil {
		c.sayFailing(why)
	}

	return func() { cancel(); reading.Wait() }, nil
}

// sayFailing reports once that the meter gives no readings, or no longer does.
func (c *Campaign) sayFailing(why error) {
	if !c.meterFailing && why != nil {
		c.tell(record.Event{
			Event: "warning",
			Text: "the power meter gives no readings: " +
				check.Plain(why.Error()),
		})
	}

	c.meterFailing = why != nil
}

// addMeter adds the meter's readings since the trial began.
func (c *Campaign) addMeter(t *record.Trial) {
	if c.meter == nil {
		return
	}

	s, why := c.meter.Samples(t.Origin, t.Ended)
	t.Meter = &s
	if c.sayFailing(why); why != nil {
		t.Caveats = append(t.Caveats, record.Caveat{
			Kind: "meter-failed",
			Text: "the power meter gave no readings at the end of the trial: " + check.Plain(why.Error()),
		})
	}
}
