package trial

import (
	"context"
	"sync"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/meter"
)

// meterWait limits the time to wait for the first reading of the power meter.
const meterWait = 3 * time.Second

// startMeter starts to read the run's power meter, unless the run has no meter or the user typed in the
// readings. The function stop ends the reading. If the meter gives no reading, startMeter reports a warning
// and the run continues.
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

// sayFailing reports that the meter gives no readings, once per failure.
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

// addMeter adds the readings of the meter during the trial.
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
