package method

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Next returns the trial that follows history, which must contain all trials of this search in order. ok is
// false if the search has ended. The result depends on history only.
func (c Config) Next(history []Trial) (step record.TrialInput, ok bool, err error) {
	if err := c.Check(); err != nil {
		return step, false, err
	}

	s := &search{c: c, grid: newGrid(c), history: history, at: map[int][]Trial{}}
	s.run()
	switch {
	case s.err != nil:
		return step, false, s.err
	case s.next != nil:
		return *s.next, true, nil
	case s.used < len(history):
		return step, false, fmt.Errorf("replay search: it ended after %d of %d trials", s.used, len(history))
	}

	return step, false, nil
}

// search replays a history. It runs the heuristics, and answers each request for a trial with the next trial
// of the history, until the history ends.
type search struct {
	c       Config
	grid    grid
	history []Trial

	at    map[int][]Trial // trials that count, by index of their loads
	used  int
	spent time.Duration
	next  *record.TrialInput // requested trial that follows the history
	err   error
}

// measure requests one trial. ok is false if the history does not contain it.
func (s *search) measure(index int, d time.Duration, warmup bool) (t Trial, ok bool) {
	if s.c.MaxTime > 0 && s.spent >= s.c.MaxTime {
		return Trial{}, false // the time is used up, so there is no next trial
	}

	step := record.TrialInput{Load: s.grid.load(index), Duration: d, Warmup: warmup}
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

// run runs the whole search. After the initial trials, it repeatedly measures the most important trial that
// the selectors of the goals request, until they request none.
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
				winner = c
				by = sel
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

// initial returns the two loads between which the search starts. It first measures the maximum load, and then
// the rate that was forwarded at this load. The third load is the rate that was forwarded at the second one
// or, if the loss was negligible, the load one width above the second one. See forwarded for how these rates
// are computed.
func (s *search) initial(selectors []*selector) (low, high int, ok bool) {
	ratio := math.Inf(1)
	duration := time.Duration(0)
	width := 0
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

// forwarded returns the load that would have had the given loss ratio if all frames above the forwarded rate
// were lost.
func forwarded(t Trial, ratio float64) float64 { return t.Load * (1 - t.Loss) / (1 - ratio) }

// none is the index of a missing bound.
const none = -1

// place moves a load away from the bounds on both sides, until it is at least a width away from each of them.
// On a side without a bound, the limit of the grid stands in for the bound, and the load may be equal to it.
// far is false if there is no such load.
func (s *search) place(index, width, low, high int) (placed int, far bool) {
	least := max(low, 0)
	greatest := s.grid.top
	if high != none {
		greatest = high
	}

	lowFree := low == none
	highFree := high == none
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

	softLow := least + width
	softHigh := greatest - width
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

// bounds returns the indexes of the lower and the upper bound of a goal, or none for a missing bound.
func (s *search) bounds(g record.Goal) (low, high int) {
	low = none
	for _, i := range slices.Sorted(maps.Keys(s.at)) {
		switch classify(g, s.at[i]) {
		case Upper:
			return low, i
		case Lower:
			low = i
		}
	}
	return low, none
}

// target is a goal, or a coarser form of a goal with shorter duration sums and a larger width. A search meets
// the coarser forms first.
type target struct {
	goal  record.Goal // with the durations of the target
	width int         // in steps of the grid
}

// targets returns a goal's targets, coarsest first. Each target has twice the width of the next one. The
// duration sums shrink geometrically, from the goal's sum down to one initial trial.
func (s *search) targets(g record.Goal) []target {
	width := s.grid.steps(g.Width)
	chain := make([]target, g.Coarser+1)
	chain[g.Coarser] = target{g, width}
	shrink := 1.0
	if g.Coarser > 0 {
		shrink = math.Pow(g.InitialDuration.Seconds()/g.DurationSum.Seconds(), 1/float64(g.Coarser))
	}

	for k := 1; k <= g.Coarser; k++ {
		width *= 2
		t := g
		t.DurationSum = time.Duration(float64(g.DurationSum) * math.Pow(shrink, float64(k)))
		if k == g.Coarser {
			t.DurationSum = g.InitialDuration
		}

		t.FinalDuration = min(g.FinalDuration, t.DurationSum)
		chain[g.Coarser-k] = target{t, width}
	}

	return chain
}

// candidate is a trial that a selector requests.
type candidate struct {
	index    int
	duration time.Duration
	width    int
	grow     growth // result after which the next step is larger
}

// growth is the result of a trial after which the next step of an external search becomes larger, because the
// search has still not found a bound.
type growth int

const (
	never growth = iota
	ifLower
	ifUpper
)

// before reports whether c is measured before d. Lower loads come first, because they may make higher ones
// unnecessary. At the same load, longer trials come first, because they may make shorter ones unnecessary.
func (c candidate) before(d candidate) bool {
	if c.index != d.index {
		return c.index < d.index
	}

	if c.duration != d.duration {
		return c.duration > d.duration
	}
	return c.width > d.width
}

// selector requests the trials for one goal, target by target.
type selector struct {
	s       *search
	targets []target
	current int
	low     int // bounds at the start of the current target, as left by the previous target, or none
	high    int
	shared  *int // step of all external searches; shared, so that goals do not interleave
	step    int  // step of the selector
	lo, hi  int  // current relevant bounds
}

func (s *search) selectors() []*selector {
	var out []*selector
	for _, g := range s.c.Goals {
		out = append(out, &selector{s: s, targets: s.targets(g)})
	}
	return out
}

// begin starts the current target between two loads.
func (x *selector) begin(low, high int, shared *int) {
	x.low = low
	x.high = high
	x.shared = shared
	x.step = x.target().width
	if low != none && high != none {
		x.step = max(x.step, high-low)
	}

	x.widen()
}

func (x *selector) target() target { return x.targets[x.current] }

func (x *selector) widen() { x.step *= x.target().goal.Expansion }

// limit resets the step of external searches to a width or, if that is larger, to the width of the target.
func (x *selector) limit(width int) {
	x.step = max(width, x.target().width)
	x.widen()
}

func (x *selector) reach() int { return max(x.step, *x.shared) }

// nominate returns a trial that brings the goal closer. When the current target is reached, nominate
// continues with the next one. ok is false if the goal is reached.
func (x *selector) nominate() (c candidate, ok bool) {
	for {
		x.lo, x.hi = x.s.bounds(x.target().goal)
		for _, strategy := range [...]func() (candidate, bool){x.halve, x.refineLow, x.refineHigh,
			x.extendDown, x.extendUp, x.bisect} {
			if c, ok := strategy(); ok {
				c.duration = x.target().goal.FinalDuration
				return c, true
			}
		}

		if x.current+1 == len(x.targets) {
			return candidate{}, false
		}

		x.current++
		x.begin(x.lo, x.hi, x.shared)
	}
}

// worth reports whether a trial at a load can bring the bounds closer together. It returns false if they are
// at most a width apart.
func (x *selector) worth(index int) bool {
	if x.lo != none && x.lo >= index || x.hi != none && x.hi <= index {
		return false
	}
	return x.lo == none || x.hi == none || x.hi-x.lo > x.target().width
}

// halve splits the interval between the bounds of the previous target, if one split is enough.
func (x *selector) halve() (candidate, bool) {
	w := x.target().width
	if x.low == none || x.high == none || x.high-x.low <= w || x.high-x.low > 2*w {
		return candidate{}, false
	}
	return x.refine(middle(x.low, x.high, w))
}

// refineLow and refineHigh measure the bounds of the previous target again, for a longer time.
func (x *selector) refineLow() (candidate, bool)  { return x.refine(x.low) }
func (x *selector) refineHigh() (candidate, bool) { return x.refine(x.high) }

func (x *selector) refine(index int) (candidate, bool) {
	if index == none || !x.worth(index) {
		return candidate{}, false
	}

	w := x.target().width
	x.limit(w)
	return candidate{index: index, width: w}, true
}

// extendDown requests a load below the upper bound if there is no lower bound.
func (x *selector) extendDown() (candidate, bool) {
	if x.lo != none || x.hi == none || x.hi == 0 {
		return candidate{}, false
	}
	return x.extend(x.hi-x.reach(), ifUpper)
}

// extendUp requests a load above the lower bound if there is no upper bound.
func (x *selector) extendUp() (candidate, bool) {
	if x.hi != none || x.lo == none || x.lo == x.s.grid.top {
		return candidate{}, false
	}
	return x.extend(x.lo+x.reach(), ifLower)
}

func (x *selector) extend(index int, grow growth) (candidate, bool) {
	index, far := x.s.place(index, x.target().width, x.lo, x.hi)
	if !far || !x.worth(index) {
		return candidate{}, false
	}
	return candidate{index: index, width: x.reach(), grow: grow}, true
}

// bisect splits the interval between the bounds. If one bound comes from another goal's trials and is far
// from the start of this target, bisect instead takes a step from the nearer bound, as an external search
// does.
func (x *selector) bisect() (candidate, bool) {
	w := x.target().width
	if x.lo == none || x.hi == none || x.hi-x.lo <= w {
		return candidate{}, false
	}

	mid := middle(x.lo, x.hi, w)
	if x.high != none && mid < x.high {
		if c, ok := x.extend(x.hi-x.reach(), ifUpper); ok && c.index > mid && c.index < x.high {
			return c, true
		}
	}

	if x.low != none && mid > x.low {
		if c, ok := x.extend(x.lo+x.reach(), ifLower); ok && c.index < mid && c.index > x.low {
			return c, true
		}
	}

	if !x.worth(mid) {
		return candidate{}, false
	}

	width := min(mid-x.lo, x.hi-mid)
	x.limit(width)
	return candidate{index: mid, width: width}, true
}

// won updates the selector after the requested trial c was measured.
func (x *selector) won(c candidate) {
	x.lo, x.hi = x.s.bounds(x.target().goal)
	if c.grow == ifLower && x.lo == c.index || c.grow == ifUpper && x.hi == c.index {
		x.widen()
		*x.shared = x.step
	}
}
