package method

import (
	"fmt"
	"math"
	"time"
)

// Step is the input of the next trial: a load and a duration, no more.
type Step struct {
	Load     float64
	Duration time.Duration
	Warmup   bool // its result will not count
}

// Next returns the trial that follows those of history, which must be all trials of this search in order;
// ok is false once the search has ended. The same history always has the same successor.
func (c Config) Next(history []Trial) (step Step, ok bool, err error) {
	if err := c.Check(); err != nil {
		return Step{}, false, err
	}
	s := &search{c: c, grid: newGrid(c), history: history, at: map[int][]Trial{}}
	s.run()
	if s.err != nil {
		return Step{}, false, s.err
	}
	if s.next == nil {
		if s.used < len(history) {
			return Step{}, false, fmt.Errorf("replay search: it ended after %d of %d trials", s.used,
				len(history))
		}
		return Step{}, false, nil
	}
	return *s.next, true, nil
}

// search replays a history against the heuristics: each measurement that they ask for is answered by the
// next trial of the history, until that is used up.
type search struct {
	c       Config
	grid    grid
	history []Trial

	at    map[int][]Trial // index of load → trials that count
	used  int
	spent time.Duration
	next  *Step // asked for, but not in the history
	err   error
}

// measure asks for one trial. ok is false where the replay ends.
func (s *search) measure(index int, d time.Duration, warmup bool) (t Trial, ok bool) {
	if s.c.MaxTime > 0 && s.spent >= s.c.MaxTime {
		return Trial{}, false // given up: no next step either
	}
	step := Step{Load: s.grid.load(index), Duration: d, Warmup: warmup}
	if s.used == len(s.history) {
		s.next = &step
		return Trial{}, false
	}
	t = s.history[s.used]
	if math.Abs(t.Load-step.Load) > slack*step.Load || t.Duration != d || t.Warmup != warmup {
		s.err = fmt.Errorf("replay search: trial %d had load %v for %s, wanted %v for %s",
			s.used+1, t.Load, t.Duration, step.Load, step.Duration)
		return Trial{}, false
	}
	s.used++
	s.spent += time.Duration(t.seconds() * 1e9)
	if !warmup {
		s.at[index] = append(s.at[index], t)
	}
	return t, true
}

// run plays the whole search: initial trials, then whichever trial the goals' selectors want most, until
// none wants one.
func (s *search) run() {
	selectors := s.selectors()
	low, high, ok := s.initial(selectors)
	if !ok {
		return
	}
	shared := high - low
	for _, sel := range selectors {
		sel.begin(low, high, &shared)
	}
	for {
		var winner candidate
		var by *selector
		for _, sel := range selectors {
			if c, ok := sel.nominate(); ok && (by == nil || c.before(winner)) {
				winner, by = c, sel
			}
		}
		if by == nil {
			return
		}
		if _, ok := s.measure(winner.index, winner.duration, false); !ok {
			return
		}
		shared = winner.width
		by.won(winner)
	}
}

// initial looks for a good place to start: at the greatest load, then at the rate forwarded there, then at
// the rate forwarded at that, or one width above where that had no loss to speak of. Rates are taken as if
// every frame above them were lost. It returns the two loads between which to start.
func (s *search) initial(selectors []*selector) (low, high int, ok bool) {
	ratio, duration, width := math.Inf(1), time.Duration(0), 0
	for _, sel := range selectors {
		first := sel.targets[0]
		ratio = min(ratio, first.goal.LossRatio)
		duration = max(duration, first.goal.FinalDuration)
		width = max(width, first.width)
	}
	top := s.grid.top
	if s.c.Warmup > 0 {
		if _, ok := s.measure(top, s.c.Warmup, true); !ok {
			return 0, 0, false
		}
	}
	t, ok := s.measure(top, duration, false)
	if !ok {
		return 0, 0, false
	}
	first := s.grid.below(forwarded(t, ratio))
	if first >= top {
		return top, top, true
	}
	first, _ = s.place(first, width, none, top)
	if t, ok = s.measure(first, duration, false); !ok {
		return 0, 0, false
	}
	var second int
	var far bool
	if t.Loss > ratio {
		second = s.grid.below(forwarded(t, ratio))
		second, far = s.place(second, width, none, first)
	} else {
		second, far = s.place(first+width, width, first, top)
	}
	if !far {
		return first, first, true
	}
	if _, ok := s.measure(second, duration, false); !ok {
		return 0, 0, false
	}
	return min(first, second), max(first, second), true
}

// forwarded is the load that would have had the given loss ratio if all above what was forwarded were lost.
func forwarded(t Trial, ratio float64) float64 { return t.Load * (1 - t.Loss) / (1 - ratio) }

// none is the index of a bound that does not exist.
const none = -1

// place moves a load away from the bounds between which it is to lie, so that it is at least a width from
// either, or from the limits where there is no bound; a limit itself may be taken. far is false where no
// load between is far enough.
func (s *search) place(index, width, low, high int) (placed int, far bool) {
	least, greatest := 0, s.grid.top
	if low != none {
		least = low
	}
	if high != none {
		greatest = high
	}
	lowFree, highFree := low == none, high == none
	if !lowFree && index <= low || !highFree && index >= high {
		return 0, false
	}
	index = min(max(index, least), greatest)
	if greatest-least <= width {
		switch {
		case lowFree && high != 0:
			return least, true
		case highFree && low != s.grid.top:
			return greatest, true
		}
		return 0, false
	}
	softLow, softHigh := least+width, greatest-width
	if softLow > softHigh {
		softLow = middle(least, greatest, width)
		softHigh = softLow
	}
	switch {
	case index < softLow && lowFree:
		return least, true
	case index < softLow:
		return softLow, true
	case index > softHigh && highFree:
		return greatest, true
	case index > softHigh:
		return softHigh, true
	}
	return index, true
}

// bounds are the relevant bounds of a target, as indexes or none.
func (s *search) bounds(g Goal) (low, high int) {
	low, high = none, none
	for i, trials := range s.at {
		if (high == none || i < high) && g.Classify(trials) == Upper {
			high = i
		}
	}
	for i, trials := range s.at {
		if (high == none || i < high) && i > low && g.Classify(trials) == Lower {
			low = i
		}
	}
	return low, high
}
