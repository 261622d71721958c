package latency

import (
	"math/rand/v2"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// schedule holds the times at which probes are due, from the start of the load to the end of the window.
// It is computed before the first probe is sent, so that the path cannot influence when it is probed.
type schedule struct {
	start, interval int64
	First           int // index of the first probe in the window
	N               int
	Times           []int64 // set only for exponential spacing
}

// NewSchedule returns the schedule for a window. With isochronous spacing, one probe is due at the start
// of the window. With exponential spacing, the intervals are drawn from a random generator with the given
// seed.
func NewSchedule(w record.Window, interval int64, spacing string, seed uint64) schedule {
	s := schedule{start: w.Start, interval: interval}
	if spacing != record.Exponential {
		s.First = int((w.Start - w.Begin) / interval)
		s.N = s.First + int((w.End-w.Start+interval-1)/interval)
		return s
	}

	rng := rand.New(rand.NewPCG(seed, 0))
	for t := w.Begin; ; {
		t += int64(rng.ExpFloat64() * float64(interval))
		if t >= w.End {
			break
		}

		if t < w.Start {
			s.First++
		}

		s.Times = append(s.Times, t)
	}

	s.N = len(s.Times)
	return s
}

// at returns the time when probe i is due.
func (s *schedule) at(i int) int64 {
	if s.Times != nil {
		return s.Times[i]
	}
	return s.start + int64(i-s.First)*s.interval
}
