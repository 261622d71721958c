package watch

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/probe"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// source is one probe of a watch. Its fields except kept belong to the sampling loop.
type source struct {
	probe   probe.Probe
	sampler probe.Sampler // nil: unavailable; set under sampling.mu
	columns []string
	row     []float64
	levels  bool // slow, and not a counter: the difference of two reads has no meaning
	every   int64
	due     int64
	costs   []int64 // of the last reads, up to steadyCosts
	kept    series  // under sampling.mu
	reason  string  // under sampling.mu: why there is no sample
	tried   int64   // cost of the cheapest attempt to open it, while it is absent; 0 = none yet
	again   int64   // time of the next attempt
}

// sampling is the resident part of a watch: one loop that reads every source when it is due.
type sampling struct {
	options probe.Options
	sources []*source
	start   int64 // of the reads' time grid
	step    int64
	cores   probe.Cored // or nil
	wait    *waiter
	live    func(cores []float64) // must not block

	mu        sync.Mutex
	stopping  bool
	due       int64   // next planned read
	marks     []int64 // extra times at which everything is read, in order
	liveEvery int64
	overhead  series // cost of the loop itself, apart from the reads
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
	// rareFactor spaces an expensive source whose readings at the marks suffice.
	rareFactor = 5
	// steadyCosts is the number of reads that determine a source's cost, which is that of the cheapest. The
	// thread is also charged for interrupts during a read.
	steadyCosts = 5
	// cheapTry is the cost up to which an absent source is tried at every mark; tryShare bounds the attempts
	// at a more expensive one, such as the walk over all processes for virtual machines.
	cheapTry = 100e3
	tryShare = 0.0001
)

// openSampling opens the named probes. One that cannot be opened stays in the watch with its reason; an
// unknown name is an error.
func openSampling(list []probe.Probe, r Request) (*sampling, error) {
	wait, err := newWaiter()
	if err != nil {
		return nil, err
	}

	s := &sampling{options: r.Options, live: func([]float64) {}, step: r.FastNs, wait: wait}
	if len(r.Probes) > maxProbes {
		s.close()
		return nil, fmt.Errorf("watch %d probes: at most %d are watched", len(r.Probes), maxProbes)
	}

	for _, name := range r.Probes {
		i := slices.IndexFunc(list, func(p probe.Probe) bool { return p.Name == name })
		if i < 0 {
			s.close()
			return nil, fmt.Errorf("watch %q: no such probe", name)
		}

		s.add(list[i], r)
	}

	return s, nil
}

func (s *sampling) add(p probe.Probe, r Request) {
	src := &source{probe: p, every: r.FastNs}
	if p.Slow {
		src.every = r.SlowNs
	}

	if p.Rare {
		src.every = rareFactor * r.SlowNs
	} else if p.Slow {
		src.levels = !slices.ContainsFunc(p.Stems, func(m record.Metric) bool { return m.Counter })
	}

	s.sources = append(s.sources, src)
	s.try(src)
}

// try opens a source that has no sampler. If that fails, it keeps the reason.
func (s *sampling) try(src *source) {
	sampler, err := src.probe.Open(s.options)
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

// retry opens sources that were absent, such as that of a kernel module loaded meanwhile, and makes them due
// at once. The cost counts for the loop, and is bounded: a window may be short, and most absent sources, such
// as a sensor, stay absent.
func (s *sampling) retry(now int64) {
	for _, src := range s.sources {
		if src.sampler != nil || now < src.again {
			continue
		}

		before := threadTime()
		s.try(src)
		src.due, src.again = now, src.worth(now, threadTime()-before)
	}
}

// worth returns when to try an absent source again after an attempt at now. The cheapest attempt determines
// the cost: the thread is also charged for interrupts.
func (src *source) worth(now, cost int64) int64 {
	if src.tried == 0 || cost < src.tried {
		src.tried = cost
	}

	if src.tried <= cheapTry {
		return now
	}
	return now + int64(float64(src.tried)/tryShare)
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

	s.wait.Close()
}

// loop samples until stop.
func (s *sampling) loop() {
	makeRoom()
	s.start = host.Monotonic()
	for _, src := range s.sources {
		src.due = s.start
	}

	var between asleep
	liveDue := s.start
	trimDue := s.start
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

		release := lockThread()
		waking, before := between.over()
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

		s.book(now, waking+max(between.begin()-before-read, 0))
		release()
	}
}

// asleep estimates the cost of falling asleep and waking up, which is not included in any thread's time: the
// sleeper gives its core to other threads, and may wake up on another core.
type asleep struct {
	thread int
	since  int64 // CPU time of the thread
	cost   int64 // of the last sleep that stayed on its thread
}

// maxWaking bounds the cost of a sleep; anything above belongs to other work on the thread.
const maxWaking = 50e3

// begin records the time at which the thread is left, and returns it.
func (a *asleep) begin() int64 {
	a.thread, a.since = threadID(), threadTime()
	return a.since
}

// over returns the cost of the sleep, by the last one that stayed on its thread, and the thread's present
// time.
func (a *asleep) over() (cost, now int64) {
	now = threadTime()
	if threadID() == a.thread {
		a.cost = min(max(now-a.since, 0), maxWaking)
	}
	return a.cost, now
}

// plan returns when something is due next, and whether that is a mark.
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
		next = s.marks[0]
		marked = true
	}

	s.due = next
	return next, marked, s.liveEvery, s.stopping
}

// catchUp waits until the loop has noticed that it is late, for at most half a second. After the process was
// stopped, the goroutine that answers the controller may wake before the loop does, and not report the stall.
func (s *sampling) catchUp() {
	for range 100 {
		s.mu.Lock()
		late := host.Monotonic() - s.due
		s.mu.Unlock()
		if late <= stallNs {
			return
		}

		time.Sleep(5 * time.Millisecond)
	}
}

// tick reads the sources that are due, or all at a mark, and returns the CPU time that the reads took. One
// reading of the thread's clock serves as the end of one read and the start of the next.
func (s *sampling) tick(now int64, marked bool) (read int64) {
	before := threadTime()
	mark := s.nextMark()
	for _, src := range s.sources {
		if src.sampler == nil || src.due > now && (!marked || src.levels && s.lastMark()) {
			continue
		}

		if !marked && src.probe.Slow && mark-now <= src.every/2 {
			src.due = mark // that is soon enough
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
		s.retry(now) // after the reads, for which the mark was set
	}

	return read
}

// lastMark reports, at a mark, that no other follows: it is the end of a window. A level read then reveals
// nothing about the window.
func (s *sampling) lastMark() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.marks) <= 1
}

// nextMark returns the time of the next mark, far away if there is none.
func (s *sampling) nextMark() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.marks) == 0 {
		return math.MaxInt64
	}

	return s.marks[0]
}

// next returns when the source is due again after a read at the time at, which may have been a mark. All
// times are on the grid of the fast sources, because waking up costs as much as a read; missed reads are
// skipped. A source does not count as expensive after a single read.
func (s *sampling) next(src *source, at, cost int64) int64 {
	every, step := src.every, min(src.every, s.step)
	if len(src.costs) == steadyCosts {
		src.costs = slices.Delete(src.costs, 0, 1)
	}

	src.costs = append(src.costs, cost)
	if src.probe.Slow && len(src.costs) > 1 {
		every = max(every, int64(float64(slices.Min(src.costs))/slowShare))
	}

	return s.start + ((at+every-step-s.start)/step+1)*step
}

// sample fills the row, and again if the columns have just changed.
func (src *source) sample() (err error) {
	for range 3 { // give up for now on a set of devices that changes all the time
		if err = src.sampler.Sample(src.row); !errors.Is(err, probe.ErrColumns) {
			return err
		}

		src.describe()
	}
	return err
}

func (s *sampling) read(src *source) bool {
	err := src.sample()
	if err != nil {
		s.mu.Lock()
		src.reason = err.Error()
		s.mu.Unlock()
	}
	return err == nil
}

func (s *sampling) keep(src *source, at, cost int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	src.kept.add(at, cost, src.columns, src.row)
	if l, ok := src.sampler.(probe.Liner); ok {
		s.log = append(s.log, l.Lines()...)
		extra := len(s.log) - keptLines
		if extra > 0 {
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
	trimSeries(s.all(), now)
}

func (s *sampling) all() []*series {
	all := []*series{&s.overhead}
	for _, src := range s.sources {
		all = append(all, &src.kept)
	}
	return all
}

// schedule adds marks. Those already past are taken at once, and their delay does not count against the
// sampler.
func (s *sampling) schedule(at []int64) error {
	now := host.Monotonic()
	s.mu.Lock()
	if len(s.marks)+len(at) > maxMarks {
		s.mu.Unlock()
		return fmt.Errorf("watch: more than %d times to read at", maxMarks)
	}

	for _, t := range at {
		s.marks = append(s.marks, max(t, now))
	}

	slices.Sort(s.marks)
	s.mu.Unlock()
	s.wait.wake()
	return nil
}

func (s *sampling) stop() {
	s.mu.Lock()
	s.stopping = true
	s.mu.Unlock()
	s.wait.wake()
}

// samplerCost is the entry of record.Cost for the loop itself, apart from the reads: waking up, clocks,
// copying.
const samplerCost = "sampler"

// collect passes each probe's samples of from…to, and the nearest outside, to send, and returns the rest:
// cost, log lines, stalls. It drops the samples that ended before: each collection covers later times than
// the previous one, and a watch of many trials must not hold them all.
func (s *sampling) collect(from, to int64, send func(record.Samples) error) (record.NodeData, error) {
	var d record.NodeData
	s.catchUp()
	for _, src := range s.sources {
		samples, cost := s.cut(src, from, to)
		if cost.Reads > 0 { // even if there was nothing to read
			d.Cost = append(d.Cost, cost)
		}

		if err := send(samples); err != nil {
			return record.NodeData{}, err
		}
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	_, loop := s.overhead.cut(from, to)
	loop.Probe = samplerCost
	d.Cost = append(d.Cost, loop)
	for _, l := range s.log {
		if l.At >= from && l.At <= to {
			d.Log = append(d.Log, l)
		}
	}

	for _, st := range s.stalls {
		// A stall lasts from the time at which the sample was due until it was taken.
		if st.At >= from && st.At-st.LateNs <= to {
			d.Stalls = append(d.Stalls, st)
		}
	}

	s.log = slices.DeleteFunc(s.log, func(l record.LogLine) bool { return l.At < from })
	s.stalls = slices.DeleteFunc(s.stalls, func(st record.Stall) bool { return st.At < from })
	for _, kept := range s.all() {
		kept.forget(from)
	}

	return d, nil
}

func (s *sampling) cut(src *source, from, to int64) (record.Samples, record.Cost) {
	metrics := src.probe.Metrics()
	out := record.Samples{Probe: src.probe.Name, Scope: src.probe.Scope}
	s.mu.Lock()
	view := src.kept.snapshot()
	reason := src.reason
	if d, ok := src.sampler.(probe.Declarer); ok {
		metrics = slices.Concat(metrics, d.Declared())
	}

	s.mu.Unlock()
	table, cost := view.cut(from, to)
	cost.Probe = out.Probe
	switch {
	case len(table.T) > 0 && len(table.Names) > 0:
		out.Table, out.Metrics = table, metrics
	case len(table.T) > 0:
		out.Unavailable = cmp.Or(src.probe.Empty, "nothing to sample")
	default:
		out.Unavailable = cmp.Or(reason, "no sample was taken in that time")
	}

	return out, cost
}
