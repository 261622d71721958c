package traffic

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// A Worker carries one flow, or several in turn, on a thread.
type Worker interface {
	// Run moves data until the phases report the end; it returns soon after Unblock.
	Run(p *Phases) error
	Name() string // in errors
}

// threadOwner is a worker whose work is done by its own thread, not by the caller of Run.
type threadOwner interface{ Thread() int }

// Flow is one end of one stream in one direction.
type Flow interface {
	// Sample is called by the meter at each tick; edge names the window's.
	Sample(at int64, edge Edge)
	// Received returns what counts as progress: payload bytes and datagrams.
	Received() (bytes, packets int64)
	Report() FlowReport
	Close()
}

// Unblocker is a flow whose worker may block in a call.
type Unblocker interface {
	// Unblock ends those calls: at first gently, so that data in transit arrives, then at once.
	Unblock(how Urgency)
}

// Urgency is the manner in which calls are ended.
type Urgency int

const (
	softly Urgency = iota
	AtOnce
)

// Edge names an edge of the window.
type Edge int

const (
	NoEdge Edge = iota
	StartEdge
	EndEdge
)

// Phases is the timeline as the threads of one end see it.
type Phases struct {
	record.Window
	Senders   int64       // when senders stop, a little after End
	Slack     int64       // ns, how late a sender of frames may begin with everything it has to send
	Abandoned atomic.Bool // abandon everything
}

// A window without a warm-up that is shorter than any in a plan is a burst. It has a length and a rate, but
// no fixed time: it begins when the sender gets to run, or not at all. Beside an emulator a sender waited for
// 50 to 80 ms in its run queue: with a kernel that shares a core among sessions (sched_autogroup), 8 and 11
// of some 70 trials fell into such a wait, without that, 2 and 1.
const (
	minWindow     = 100 * time.Millisecond
	burstPatience = 250 * time.Millisecond
)

func newPhases(w record.Window) *Phases {
	half := (w.Stop - w.End) / 2
	if w.Begin == w.Start && w.End-w.Start < int64(minWindow) {
		slack := min(int64(burstPatience), half)
		return &Phases{Window: w, Senders: w.End + slack, Slack: slack}
	}
	return &Phases{Window: w, Senders: w.End + min(int64(record.SendersMargin), half)}
}

// Endpoint is one end of a whole load.
type Endpoint struct {
	Part
	Keys     []FlowKey
	Flows    []Flow
	Workers  []Worker // the flows' carriers
	EndSetup func()   // ends the keepalive of connections before the run; may be nil, like the following ones
	Begin    func(ctx context.Context, w record.Window)
	Finish   func(*EndReport) error // completes the report of the end
	Release  func()                 // closes what the flows share
	Details  map[string]string
	Mode     func() string // how this end sent and received; called at the end
}

func (l *Endpoint) Close() {
	l.endSetup()
	for _, f := range l.Flows {
		if f != nil {
			f.Close()
		}
	}

	l.Flows = nil
	if l.Release != nil {
		l.Release()
		l.Release = nil
	}
}

func (l *Endpoint) endSetup() {
	if l.EndSetup != nil {
		l.EndSetup()
		l.EndSetup = nil
	}
}

// UsesCongestion records a stream's congestion control, in the order in which streams take them.
func (l *Endpoint) UsesCongestion(name string) {
	had := l.Details["congestion"]
	if name != "" && !slices.Contains(strings.Split(had, "+"), name) {
		l.Details["congestion"] = strings.TrimPrefix(had+"+"+name, "+")
	}
}

// Run follows the timeline and returns this end's results: the report of the end, then that of each flow.
func (l *Endpoint) Run(ctx context.Context, w record.Window, say func(Progress) error) ([]any, error) {
	l.endSetup()
	if l.Begin != nil {
		l.Begin(ctx, w)
	}

	p := newPhases(w)
	flows := l.Flows // may outlive close in the watcher of a cancelled context
	m := newMeter(flows, time.Duration(l.Request.Load.Interval))
	errs := make([]error, len(l.Workers))
	tids := make([]atomic.Int64, len(l.Workers))
	var workers sync.WaitGroup
	for i, c := range l.Workers {
		workers.Go(func() {
			tid := OwnThread()
			if e, ok := c.(threadOwner); ok {
				tid = e.Thread()
			}

			tids[i].Store(int64(tid))
			if errs[i] = c.Run(p); errs[i] != nil {
				p.Abandoned.Store(true)
				unblock(flows, AtOnce)
			}
		})
	}

	// A cancelled context stops the threads; so does the end of the run.
	end := context.AfterFunc(ctx, func() {
		p.Abandoned.Store(true)
		unblock(flows, AtOnce)
	})
	var watchers sync.WaitGroup
	watchers.Go(func() { m.run(p, tids) })
	done := make(chan struct{})
	watchers.Go(func() { Tell(done, say, l.look()) })
	finished := make(chan struct{})
	go func() { // ends with the workers
		workers.Wait()
		close(finished)
	}()
	SleepUntil(p.Senders, &p.Abandoned)
	unblock(flows, softly)
	select {
	case <-finished:
	case <-time.After(l.drain(p)):
	}

	unblock(flows, AtOnce)
	<-finished
	p.Abandoned.Store(true)
	close(done)
	watchers.Wait()
	end()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}

	for i, err := range errs {
		if err != nil {
			return nil, fmt.Errorf("%s: %w", l.Workers[i].Name(), err)
		}
	}

	r := l.report(m)
	if l.Finish != nil {
		if err := l.Finish(r); err != nil {
			return nil, err
		}
	}

	parts := []any{r}
	for i := range r.Flows {
		parts = append(parts, &r.Flows[i])
	}

	return parts, nil
}

// drain returns how long the flows have to end by themselves. A stream's bytes in transit at the window's end
// do not count, so that it need not wait for them; datagrams do.
func (l *Endpoint) drain(p *Phases) time.Duration {
	at := p.Stop
	if l.Request.Load.Protocol == "tcp" && !l.Request.Load.Verify {
		at = min(at, p.Senders+int64(record.SendersMargin)/2)
	}
	return time.Duration(at - Monotonic())
}

func unblock(flows []Flow, how Urgency) {
	for _, f := range flows {
		if u, ok := f.(Unblocker); ok {
			u.Unblock(how)
		}
	}
}

// look returns a function that reports what has arrived since its previous call.
func (l *Endpoint) look() func() (Progress, bool) {
	at := Monotonic()
	bytes := int64(0)
	packets := int64(0)
	return func() (Progress, bool) {
		now := Monotonic()
		b := int64(0)
		n := int64(0)
		for _, f := range l.Flows {
			fb, fn := f.Received()
			b = b + fb
			n = n + fn
		}

		seconds := float64(now-at) / 1e9
		g := Progress{
			At:          now,
			ReceivedBps: 8 * float64(b-bytes) / seconds,
			ReceivedPPS: float64(n-packets) / seconds,
		}
		at = now
		bytes = b
		packets = n
		return g, true
	}
}

// Tell reports to the controller a few times per second what look returns, if anything.
func Tell(done <-chan struct{}, say func(Progress) error, look func() (Progress, bool)) {
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
		}

		if g, ok := look(); ok && say(g) != nil {
			return // the run's end reports the cause
		}
	}
}

func (l *Endpoint) report(m *meter) *EndReport {
	r := &EndReport{Usage: UsageBetween(m.start, m.end), Details: l.Details}
	notes := map[string]int64{"timer_late_max_ns": m.lateMax, "series_interval_ns": m.interval}
	for _, f := range l.Flows {
		one := f.Report()
		r.Flows = append(r.Flows, one)
		for k, v := range one.Notes {
			if strings.HasSuffix(k, "_bytes") {
				notes[k] = max(notes[k], v) // of each socket
				continue
			}

			notes[k] += v
		}
	}

	for k, v := range notes {
		r.Details[k] = strconv.FormatInt(v, 10)
	}

	r.Details["mode"] = l.Mode()
	r.Details["timer_scheduling"] = m.scheduling
	return r
}

// ByteFlow counts the payload of one end of one stream in one direction: a flow that reports nothing else.
type ByteFlow struct {
	Key   FlowKey
	Sends bool
	Addr  string // this end's address and port
	Count atomic.Int64
	Table *record.Table

	at, bytes [2]int64 // at the window's edges; belongs to the meter until the run has ended
}

// Name names the flow in errors.
func (f *ByteFlow) Name() string { return fmt.Sprintf("stream %d %s", f.Key.Stream, f.Key.Direction) }

// Sample records the count.
func (f *ByteFlow) Sample(at int64, e Edge) { f.Note(at, f.Count.Load(), e) }

// Note records how many bytes were carried by a time.
func (f *ByteFlow) Note(at, n int64, e Edge) {
	f.Table.Append(at, float64(n))
	if e != NoEdge {
		f.at[e-StartEdge], f.bytes[e-StartEdge] = at, n
	}
}

// Received returns a receiver's count.
func (f *ByteFlow) Received() (bytes, packets int64) {
	if f.Sends {
		return 0, 0
	}
	return f.Count.Load(), 0
}

// Report covers the window.
func (f *ByteFlow) Report() FlowReport {
	return FlowReport{
		Sends: f.Sends,
		Addr:  f.Addr,
		Table: f.Table,
		Bytes: f.bytes[1] - f.bytes[0],
		Ns:    f.at[1] - f.at[0],
	}
}

// Over reports whether a call ended as planned: its time is up, or the load was abandoned.
func (p *Phases) Over(at int64) bool { return p.Abandoned.Load() || Monotonic() >= at }

// OwnThreads is the number of flows up to which each has a thread. More flows share one thread per core and
// direction, so that thousands of flows do not need thousands of stacks and switches between them.
const OwnThreads = 32

// Deal distributes flows evenly over at most n workers.
func Deal[F any](flows []F, shares int) [][]F {
	out := make([][]F, min(max(shares, 1), len(flows)))
	for i, f := range flows {
		out[i%len(out)] = append(out[i%len(out)], f)
	}
	return out
}
