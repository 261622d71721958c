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

// Worker runs one or more flows on a thread.
type Worker interface {
	// Run moves data until the end of the phases. It also returns soon after Unblock is called.
	Run(p *Phases) error
	Name() string // name for error messages
}

// threadOwner is implemented by workers that work on a thread other than the one that calls Run.
type threadOwner interface{ Thread() int }

// Flow is one end of a stream in one direction.
type Flow interface {
	// Sample records the flow's counts. The meter calls it at each tick. edge marks the start and the end of
	// the window.
	Sample(at int64, edge Edge)
	// Received returns the payload bytes and datagrams received so far, for progress reports.
	Received() (bytes, packets int64)
	Report() FlowReport
	Close()
}

// Unblocker is implemented by flows whose worker may block in a system call.
type Unblocker interface {
	// Unblock ends blocked system calls. It is first called with softly, so that data in transit still
	// arrives, and then with AtOnce.
	Unblock(how Urgency)
}

// Urgency selects how blocked system calls are ended.
type Urgency int

const (
	softly Urgency = iota
	AtOnce
)

// Edge marks the start or the end of the window.
type Edge int

const (
	NoEdge Edge = iota
	StartEdge
	EndEdge
)

// Phases holds the timeline for the threads of an endpoint.
type Phases struct {
	record.Window
	Senders   int64       // time when senders stop, shortly after End
	Slack     int64       // maximum delay in ns at which a sender may still start a burst and send all of it
	Abandoned atomic.Bool // set if threads must stop at once
}

// A window shorter than minWindow without a warm-up is a burst. A burst has a length and a rate, but may
// start up to burstPatience later than planned if the sender does not get a CPU. On a machine that also ran
// an emulator, a sender waited 50 to 80 ms in its run queue. On each of two kernels, two series of about 70
// trials were run. Such waits occurred in 8 and 11 trials on the kernel that shares a core among sessions
// (sched_autogroup), and in 2 and 1 trials on the other.
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

// Endpoint is one end of a load with all the flows of the load.
type Endpoint struct {
	Part
	Keys     []FlowKey
	Flows    []Flow
	Workers  []Worker // workers that run the flows
	EndSetup func()   // ends keepalives before the run; EndSetup and Finish may be nil
	Begin    func(ctx context.Context, w record.Window)
	Finish   func(*EndReport) error // completes the report
	Release  func()                 // releases resources that the flows share
	Details  map[string]string
	Mode     func() string // describes how this end sent and received data; called at the end
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

// UsesCongestion records the congestion control of a stream. Different names are joined in the order of
// the streams.
func (l *Endpoint) UsesCongestion(name string) {
	had := l.Details["congestion"]
	if name != "" && !slices.Contains(strings.Split(had, "+"), name) {
		l.Details["congestion"] = strings.TrimPrefix(had+"+"+name, "+")
	}
}

// Run executes the timeline and returns the parts of the result: the report of this end, then one report
// per flow.
func (l *Endpoint) Run(ctx context.Context, w record.Window, say func(Progress) error) ([]any, error) {
	l.endSetup()
	if l.Begin != nil {
		l.Begin(ctx, w)
	}

	p := newPhases(w)
	flows := l.Flows // copied, because the watcher of a cancelled context may use the flows after Close
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

	// Stop the threads if the context is cancelled.
	end := context.AfterFunc(ctx, func() {
		p.Abandoned.Store(true)
		unblock(flows, AtOnce)
	})
	var watchers sync.WaitGroup
	watchers.Go(func() { m.run(p, tids) })
	done := make(chan struct{})
	watchers.Go(func() { Tell(done, say, l.look()) })
	finished := make(chan struct{})
	go func() { // ends when the workers have ended
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

// drain returns the time in which flows may finish by themselves. Datagrams in transit at the end of the
// window still count, so they are waited for. Bytes of a TCP stream in transit at that time do not count.
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

// look returns a function that reports the data received since its previous call.
func (l *Endpoint) look() func() (Progress, bool) {
	at := Monotonic()
	var bytes, packets int64
	return func() (Progress, bool) {
		now := Monotonic()
		var b, n int64
		for _, f := range l.Flows {
			fb, fn := f.Received()
			b += fb
			n += fn
		}

		seconds := float64(now-at) / 1e9
		g := Progress{
			At:          now,
			ReceivedBps: 8 * float64(b-bytes) / seconds,
			ReceivedPPS: float64(n-packets) / seconds,
		}
		at, bytes, packets = now, b, n
		return g, true
	}
}

// Tell sends the progress that look returns to the controller a few times per second. If look returns
// false, there is nothing to send.
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
			return // not reported, because the end of the run reports the cause
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
				notes[k] = max(notes[k], v) // maximum, because the note is per socket
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

// ByteFlow implements Flow for one end of a stream in one direction. It counts payload bytes.
type ByteFlow struct {
	Key   FlowKey
	Sends bool
	Addr  string // address and port of this end
	Count atomic.Int64
	Table *record.Table

	at, bytes [2]int64 // at the start and end of the window; only for the meter until the run has ended
}

// Name returns the flow's name for error messages.
func (f *ByteFlow) Name() string { return fmt.Sprintf("stream %d %s", f.Key.Stream, f.Key.Direction) }

// Sample records the current count.
func (f *ByteFlow) Sample(at int64, e Edge) { f.Note(at, f.Count.Load(), e) }

// Note records that the flow had carried n bytes at the given time.
func (f *ByteFlow) Note(at, n int64, e Edge) {
	f.Table.Append(at, float64(n))
	if e != NoEdge {
		f.at[e-StartEdge], f.bytes[e-StartEdge] = at, n
	}
}

// Received returns the count of a receiver, or 0 for a sender.
func (f *ByteFlow) Received() (bytes, packets int64) {
	if f.Sends {
		return 0, 0
	}
	return f.Count.Load(), 0
}

// Report returns the counts of the window.
func (f *ByteFlow) Report() FlowReport {
	return FlowReport{
		Sends: f.Sends,
		Addr:  f.Addr,
		Table: f.Table,
		Bytes: f.bytes[1] - f.bytes[0],
		Ns:    f.at[1] - f.at[0],
	}
}

// Over reports whether the given time has come, or the load was aborted.
func (p *Phases) Over(at int64) bool { return p.Abandoned.Load() || Monotonic() >= at }

// OwnThreads is the number of flows up to which each flow has its own thread. If there are more flows, the
// flows of a direction are distributed among one thread per core, because thousands of threads would need
// thousands of stacks and context switches.
const OwnThreads = 32

// Deal distributes flows evenly among workers. The parameter shares limits the number of workers.
func Deal[F any](flows []F, shares int) [][]F {
	out := make([][]F, min(max(shares, 1), len(flows)))
	for i, f := range flows {
		out[i%len(out)] = append(out[i%len(out)], f)
	}
	return out
}
