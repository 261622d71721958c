package watch

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/probe"
)

// source is one probe of a watch. Its fields but kept belong to the sampling loop.
type source struct {
	probe   probe.Probe
	open    func() (probe.Sampler, error)
	sampler probe.Sampler // nil: unavailable; set under sampling.mu
	columns []string
	row     []float64
	every   int64
	due     int64
	costs   []int64 // of the last reads, as many as steadyCosts
	kept    series  // under sampling.mu
	reason  string  // under sampling.mu: why there is no sample
}

// sampling is the resident part of a watch: one loop that reads every source when it is due.
type sampling struct {
	sources []*source
	start   int64 // of the grid that the reads keep to
	step    int64
	cores   probe.Cored // or nil
	wait    *waiter
	live    func(cores []float64) // must not block

	mu        sync.Mutex
	stopping  bool
	marks     []int64 // extra times at which everything is read, in order
	liveEvery int64
	overhead  series // cost of the loop itself: what the reads do not explain
	stalls    []record.Stall
	log       []record.LogLine
}

const (
	stallNs    = 50e6
	keptStalls = 1000
	keptLines  = 5000
	// slowShare bounds a slow source's cost: one whose read takes longer than this share of its interval is
	// read less often.
	slowShare = 0.002
	// rareFactor spaces a source that costs much and whose totals between marks are all that is asked of
	// it.
	rareFactor = 5
	// steadyCosts is how many reads tell what a source costs: the cheapest of them does. The thread is also
	// charged for interrupts that hit a read.
	steadyCosts = 5
)

// openSampling opens the named probes. One that cannot be opened is part of the watch with its reason; an
// unknown name is an error.
func openSampling(ctx context.Context, list []probe.Probe, r Request) (*sampling, error) {
	s := &sampling{live: func([]float64) {}, step: r.FastNs}
	for _, name := range r.Probes {
		i := slices.IndexFunc(list, func(p probe.Probe) bool { return p.Name() == name })
		if i < 0 {
			s.close()
			return nil, fmt.Errorf("watch %q: no such probe", name)
		}
		s.add(ctx, list[i], r)
	}
	var err error
	if s.wait, err = newWaiter(); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *sampling) add(ctx context.Context, p probe.Probe, r Request) {
	if c, ok := p.(probe.Configured); ok {
		p = c.With(r.Options)
	}
	open := func() (probe.Sampler, error) { return p.Open(ctx, host.Local()) }
	src := &source{probe: p, every: r.FastNs, open: open}
	if isSlow(p) {
		src.every = r.SlowNs
	}
	if spaced, ok := p.(probe.Rare); ok && spaced.Rare() {
		src.every = rareFactor * r.SlowNs
	}
	s.sources = append(s.sources, src)
	s.try(src)
}

// try opens a source that has no sampler; it keeps the reason if it cannot.
func (s *sampling) try(src *source) {
	sampler, err := src.open()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		src.reason = err.Error()
		return
	}
	src.sampler, src.reason = sampler, ""
	src.describe()
	if c, ok := sampler.(probe.Cored); ok {
		s.cores = c
	}
}

// retry opens what was absent before, such as that of a kernel module which has been loaded since, and has
// it read at once. What that costs is the loop's own.
func (s *sampling) retry(now int64) {
	for _, src := range s.sources {
		if src.sampler != nil {
			continue
		}
		if s.try(src); src.sampler != nil {
			src.due = now
		}
	}
}

func (src *source) describe() {
	src.columns = src.sampler.Columns()
	src.row = make([]float64, len(src.columns))
}

func (s *sampling) close() {
	for _, src := range s.sources {
		if src.sampler != nil {
			src.sampler.Close()
		}
	}
	if s.wait != nil {
		s.wait.Close()
	}
}

// loop samples until stop. It must have its thread for itself.
func (s *sampling) loop() {
	makeRoom()
	defer lockThread()()
	s.start = host.Monotonic()
	for _, src := range s.sources {
		src.due = s.start
	}
	spent, liveDue, trimDue := threadTime(), s.start, s.start
	cores := make([]float64, 0, 64)
	for {
		next, marked, liveEvery, stop := s.plan()
		if stop {
			return
		}
		s.wait.until(next)
		now := host.Monotonic()
		if now < next {
			continue // woken: the plan has changed
		}
		s.stalled(next, now)
		read := s.tick(now, marked)
		if liveEvery > 0 && s.cores != nil && now >= liveDue {
			cores = s.cores.Cores(cores[:0])
			s.live(cores)
			liveDue = now + liveEvery
		}
		if now >= trimDue {
			s.trim(now)
			trimDue = now + defaultSlowNs
		}
		total := threadTime()
		s.book(now, max(total-spent-read, 0))
		spent = total
	}
}

// plan says when something is due next, and whether that is a mark.
func (s *sampling) plan() (next int64, marked bool, liveEvery int64, stop bool) {
	next = math.MaxInt64
	for _, src := range s.sources {
		if src.sampler != nil {
			next = min(next, src.due)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.marks) > 0 && s.marks[0] <= next {
		return s.marks[0], true, s.liveEvery, s.stopping
	}
	return next, false, s.liveEvery, s.stopping
}

// tick reads what is due, or everything at a mark, and returns the CPU time that the reads took. One
// reading of the thread's clock serves as the end of one read and the start of the next.
func (s *sampling) tick(now int64, marked bool) (read int64) {
	before := threadTime()
	mark := s.nextMark()
	for _, src := range s.sources {
		if src.sampler == nil || !marked && src.due > now {
			continue
		}
		if !marked && isSlow(src.probe) && mark-now <= src.every/2 {
			src.due = mark // which is soon enough
			continue
		}
		at := host.Monotonic()
		ok := s.read(src)
		after := threadTime()
		cost := after - before
		read += cost
		before = after
		if ok {
			s.keep(src, at, cost)
		}
		src.due = s.next(src, at, cost)
	}
	if marked {
		s.mu.Lock()
		s.marks = slices.DeleteFunc(s.marks, func(t int64) bool { return t <= now })
		s.mu.Unlock()
		s.retry(now) // after the reads, which the mark is about
	}
	return read
}

// nextMark is the time of the next mark, far off if there is none.
func (s *sampling) nextMark() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.marks) == 0 {
		return math.MaxInt64
	}
	return s.marks[0]
}

// next is when the source is due again after a read at the time at, which may have been a mark. All times
// are on the grid of the fast sources, because waking up costs as much as a read does; what has been missed
// is skipped. One read alone does not make a source expensive.
func (s *sampling) next(src *source, at, cost int64) int64 {
	every, step := src.every, min(src.every, s.step)
	if len(src.costs) == steadyCosts {
		src.costs = slices.Delete(src.costs, 0, 1)
	}
	src.costs = append(src.costs, cost)
	if isSlow(src.probe) && len(src.costs) > 1 {
		every = max(every, int64(float64(slices.Min(src.costs))/slowShare))
	}
	return s.start + ((at+every-step-s.start)/step+1)*step
}

// read samples once, and again if the columns have just changed.
func (s *sampling) read(src *source) bool {
	var err error
	for range 3 { // a set of devices that changes all the time is given up for now
		if err = src.sampler.Sample(src.row); !errors.Is(err, probe.ErrColumns) {
			break
		}
		src.describe()
	}
	if err == nil {
		return true
	}
	s.mu.Lock()
	src.reason = err.Error()
	s.mu.Unlock()
	return false
}

func (s *sampling) keep(src *source, at, cost int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	src.kept.add(at, cost, src.columns, src.row)
	if l, ok := src.sampler.(probe.Liner); ok {
		s.log = append(s.log, l.Lines()...)
		if extra := len(s.log) - keptLines; extra > 0 {
			s.log = slices.Delete(s.log, 0, extra)
		}
	}
}

func (s *sampling) book(at, cost int64) {
	s.mu.Lock()
	s.overhead.add(at, cost, nil, nil)
	s.mu.Unlock()
}

func (s *sampling) stalled(due, now int64) {
	if now-due <= stallNs {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.stalls) == keptStalls {
		s.stalls = slices.Delete(s.stalls, 0, 1)
	}
	s.stalls = append(s.stalls, record.Stall{At: now, LateNs: now - due})
}

func (s *sampling) trim(now int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := []*series{&s.overhead}
	for _, src := range s.sources {
		all = append(all, &src.kept)
	}
	trimSeries(all, now)
}

// schedule adds marks. Those that are past when they arrive are taken at once; the sampler is not to blame
// for that delay.
func (s *sampling) schedule(at []int64) {
	now := host.Monotonic()
	s.mu.Lock()
	for _, t := range at {
		s.marks = append(s.marks, max(t, now))
	}
	slices.Sort(s.marks)
	s.mu.Unlock()
	s.wait.wake()
}

func (s *sampling) setLive(every int64) {
	s.mu.Lock()
	s.liveEvery = every
	s.mu.Unlock()
}

func (s *sampling) stop() {
	s.mu.Lock()
	s.stopping = true
	s.mu.Unlock()
	s.wait.wake()
}

func isSlow(p probe.Probe) bool {
	s, ok := p.(probe.Paced)
	return ok && s.Slow()
}
