package trial

import (
	"context"
	"sync"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// lead is how far ahead of the start the timeline is fixed: enough for a message to reach every node.
const lead = 15 * time.Millisecond

// drain bounds what is on its way when the window ends: a packet that comes later is lost. The ends stop as
// soon as they know that nothing is missing.
const drain = 500 * time.Millisecond

// conductor keeps the engines of one trial in step: all of them are ready before the timeline is fixed.
type conductor struct {
	warmup, duration time.Duration
	fixed            func(record.Window) error // called once, by the last to be ready
	progress         func(traffic.Progress)

	mu      sync.Mutex
	waiting int
	window  record.Window
	err     error
	start   chan struct{} // closed when the timeline is fixed
}

func newConductor(engines int, warmup, duration time.Duration) *conductor {
	return &conductor{waiting: engines, warmup: warmup, duration: duration, start: make(chan struct{}),
		fixed: func(record.Window) error { return nil }, progress: func(traffic.Progress) {}}
}

// Ready implements traffic.Conductor.
func (c *conductor) Ready(ctx context.Context) (record.Window, error) {
	c.mu.Lock()
	c.waiting--
	if c.waiting == 0 {
		begin := host.Monotonic() + int64(lead)
		w := record.Window{Begin: begin, Start: begin + int64(c.warmup)}
		w.End = w.Start + int64(c.duration)
		w.Stop = w.End + int64(drain)
		c.window, c.err = w, c.fixed(w)
		close(c.start)
	}
	c.mu.Unlock()
	select {
	case <-c.start:
		return c.window, c.err
	case <-ctx.Done():
		return record.Window{}, context.Cause(ctx)
	}
}

// Progress implements traffic.Conductor.
func (c *conductor) Progress(p traffic.Progress) { c.progress(p) }
