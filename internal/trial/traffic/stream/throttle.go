package stream

import (
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// throttle limits an application to a rate: it moves little at a time, and sleeps in between. A nil throttle
// does not limit.
type throttle struct {
	perNs float64 // bytes
	due   int64   // when the data moved so far is due, at the rate
}

const (
	throttleStep = 5 * time.Millisecond  // worth of data that one call moves
	throttleDebt = 50 * time.Millisecond // maximum made up for after a late wake-up
	minStep      = 1448
)

// of returns a throttle for n flows together, each of which has this share.
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

// wait sleeps until the time at which the data moved is due, but not beyond the window.
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
