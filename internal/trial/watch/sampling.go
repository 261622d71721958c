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

// source is one probe of a watch. All fields except kept and reason belong to the sampling loop.
type source struct {
	probe   probe.Probe
	sampler probe.Sampler // nil if unavailable; set under sampling.mu
	columns []string
	row     []float64
	levels  bool // slow probe without counters; a sample at the end of a window is useless
	every   int64
	due     int64
	costs   []int64 // CPU times in ns of the last reads, at most steadyCosts of them
	kept    series  // guarded by sampling.mu
	reason  string  // guarded by sampling.mu: reason why there is no sample
	tried   int64   // cost in ns of the cheapest attempt to open the source; 0 means none yet
	again   int64   // time of the next attempt to open the source
}

// sampling is the part of a watch that runs on the node: one loop that reads every source when it is due.
type sampling struct {
	options probe.Options
	sources []*source
	start   int64 // origin of the time grid of reads
	step    int64
	cores   probe.Cored // may be nil
	wait    *waiter
	live    func(cores []float64) // called with the load of each core; must not block

	mu        sync.Mutex
	stopping  bool
	due       int64   // time of the next planned read
	marks     []int64 // further times at which all sources are read, sorted
	liveEvery int64
	overhead  series // cost of the loop itself, excluding reads
	stalls    []record.Stall
	log       []record.LogLine
}

const (
	stallNs    = 50e6
	keptStalls = 1000
	keptLines  = 5000
	// slowShare limits the cost of slow sources. A source whose read takes a larger share of its interval is
	// read less often.
	slowShare = 0.002
	// rareFactor is the factor by which the intervals of expensive sources are extended, because for these
	// sources readings at the marks suffice.
	rareFactor = 5
	// steadyCosts is the number of recent reads that determine the cost of a source. The cost is that of the
	// cheapest read, because the thread is also charged for interrupts during a read.
	steadyCosts = 5
	// An unavailable source is tried at every mark if an attempt costs at most cheapTry ns. tryShare limits
	// the cost of more expensive attempts, such as the search for virtual machines among all processes.
	cheapTry = 100e3
	tryShare = 0.0001
)

// openSampling opens the named probes. A probe that cannot be opened stays in the watch, with the reason.
// It is an error if a name is unknown.
func openSampling(list []probe.Probe, r Request) (*sampling, error) {
	wait, err := newWaiter()
	if err != nil {
		return nil, err
	}

	s := &sampling{options: r.Options, live: func([]float64) {}, step: r.FastNs, wait: wait}
	if len(r.Probes) > maxProbes {
		s.close()
		return nil, fmt.Errorf("watch %d probes: want at most %d", len(r.Probes), maxProbes)
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

// try opens a source that has no sampler. If that fails, it records the reason.
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

// retry tries to open unavailable sources, such as the source of a kernel module that was loaded later.
// Sources that it opens are due at once. The cost of the attempts counts as overhead and is limited, because
// a window may be short, and most unavailable sources, such as sensors, stay unavailable.
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

// worth returns the time of the next attempt to open a source, after an attempt at the time now. The cheapest
// attempt so far determines the cost, because the thread is also charged for interrupts.
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

// loop samples until stop is called.
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
			continue // the loop was woken because the plan has changed
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

// asleep estimates the cost of going to sleep and waking up. The cost cannot be read from a thread's CPU
// time, because the sleeping goroutine may wake on another thread.
type asleep struct {
	thread int
	since  int64 // CPU time of the thread when the sleep began
	cost   int64 // cost of the last sleep that began and ended on the same thread
}

// maxWaking limits the cost of a sleep in ns. Any higher cost is due to other work on the thread.
const maxWaking = 50e3

// begin records the thread's CPU time before a sleep, and returns that time.
func (a *asleep) begin() int64 {
	a.thread, a.since = threadID(), threadTime()
	return a.since
}

// over returns the cost of the sleep, and the thread's current CPU time. If the sleep ended on another
// thread, the cost is that of the last sleep that ended on the same thread.
func (a *asleep) over() (cost, now int64) {
	now = threadTime()
	if threadID() == a.thread {
		a.cost = min(max(now-a.since, 0), maxWaking)
	}
	return a.cost, now
}

// plan returns the time of the next read, whether it is a mark, the interval of live reports, and whether
// to stop.
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

// catchUp waits for at most half a second until the loop has noticed that it is late. After the process
// was suspended, the goroutine that answers the controller may run before the loop does, and would then
// not report the stall.
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

// tick reads the sources that are due, or all sources at a mark, and returns the CPU time of the reads.
// The thread's clock is read once between two reads, as the end of the first and the start of the second.
func (s *sampling) tick(now int64, marked bool) (read int64) {
	before := threadTime()
	mark, last := s.nextMark()
	for _, src := range s.sources {
		if src.sampler == nil || src.due > now && (!marked || src.levels && last) {
			continue
		}

		if !marked && src.probe.Slow && mark-now <= src.every/2 {
			src.due = mark // the source is read at the mark, which is soon enough
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
		s.retry(now) // after the reads for which the mark was set
	}

	return read
}

// nextMark returns the time of the next mark, or math.MaxInt64 if there is none. It also reports whether no
// further mark follows, so that the next one is the end of a window. A value that is not a counter is not
// read there, because it reveals nothing about the window.
func (s *sampling) nextMark() (at int64, last bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.marks) == 0 {
		return math.MaxInt64, true
	}

	return s.marks[0], len(s.marks) == 1
}

// next returns the time at which the source is due again. The parameter at is the time of the last read,
// which may have been a mark. All times are multiples of the fast sources' interval, because waking up costs
// as much as a read. Missed reads are skipped. One read is not enough to classify a source as expensive.
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

// sample fills the source's row. If the columns have changed, it takes the sample again.
func (src *source) sample() (err error) {
	for range 3 { // give up if the columns change all the time
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

// schedule adds marks. If a mark is in the past, all sources are read at once, and the delay does not
// count as a stall.
func (s *sampling) schedule(at []int64) error {
	now := host.Monotonic()
	s.mu.Lock()
	if len(s.marks)+len(at) > maxMarks {
		s.mu.Unlock()
		return fmt.Errorf("watch: more than %d scheduled reads", maxMarks)
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

// samplerCost is the name in record.Cost for the loop itself: waking up, reading clocks and copying.
const samplerCost = "sampler"

// collect calls send with each probe's samples between from and to, and the nearest samples before and after.
// It returns all other data: cost, log lines and stalls. It then forgets older samples, because each
// collection is later than the previous one, and a watch of many trials must not keep all samples.
func (s *sampling) collect(from, to int64, send func(record.Samples) error) (record.NodeData, error) {
	var d record.NodeData
	s.catchUp()
	for _, src := range s.sources {
		samples, cost := s.cut(src, from, to)
		if cost.Reads > 0 { // recorded even if the probe had no columns
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
		// A stall lasts from the time when the sample was due until the time when it was taken.
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
