package traffic

import (
	"math/rand/v2"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// schedule is when each probe is due: from the begin of the load to the end of its window. Both kinds are
// fixed before the first probe is sent, so that what the path does changes nothing about when it is looked
// at.
type schedule struct {
	start, interval int64
	first           int // index of the first probe whose time is in the window
	n               int
	times           []int64 // of exponential spacing
}

// newSchedule makes the schedule of a window. Of isochronous probes one is due at the window's start; the
// others' gaps are drawn from the seed.
func newSchedule(w record.Window, interval int64, spacing string, seed uint64) schedule {
	s := schedule{start: w.Start, interval: interval}
	if spacing != record.Exponential {
		s.first = int((w.Start - w.Begin) / interval)
		s.n = s.first + int((w.End-w.Start+interval-1)/interval)
		return s
	}
	rng := rand.New(rand.NewPCG(seed, 0))
	for t := w.Begin; ; {
		t += int64(rng.ExpFloat64() * float64(interval))
		if t >= w.End {
			break
		}
		if t < w.Start {
			s.first++
		}
		s.times = append(s.times, t)
	}
	s.n = len(s.times)
	return s
}

// at is the time at which the i-th probe is due.
func (s *schedule) at(i int) int64 {
	if s.times != nil {
		return s.times[i]
	}
	return s.start + int64(i-s.first)*s.interval
}
