package stream

import (
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// throttle limits the rate of an application. The application moves a small amount of data at a time and
// sleeps in between. A nil throttle does not limit the rate.
type throttle struct {
	perNs float64 // bytes per ns
	due   int64   // time at which the rate permits the data moved so far
}

const (
	throttleStep = 5 * time.Millisecond  // time for which the data of one call suffices at the rate
	throttleDebt = 50 * time.Millisecond // maximum delay that is made up after a late wake-up
	minStep      = 1448
)

// of returns a throttle for a group of flows. Its rate is the sum of the rates that t allows each flow.
func (t *throttle) of(flows int) *throttle {
	if t == nil || flows == 1 {
		return t
	}
	return &throttle{perNs: t.perNs * float64(flows)}
}

// share returns the part of b that one call may move.
func (t *throttle) share(b []byte) []byte {
	if t == nil {
		return b
	}
	return b[:min(len(b), max(minStep, int(t.perNs*float64(throttleStep))))]
}

// wait sleeps until the rate permits the data moved so far, or until the end of the window.
func (t *throttle) wait(p *traffic.Phases, moved int) {
	if t == nil || moved <= 0 || p.Over(p.End) {
		return
	}

	now := traffic.Monotonic()
	t.due = max(t.due, now-int64(throttleDebt)) + int64(float64(moved)/t.perNs)
	if t.due > now {
		traffic.SleepUntil(min(t.due, p.End), &p.Abandoned)
	}
}
