package traffic

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Serve is the node half of the native engine.
func (Native) Serve(ctx context.Context, s host.Session) error {
	var q request
	if err := s.Recv(&q); err != nil {
		return err
	}
	if q.Check {
		return s.Send(checkNative(q.Load))
	}
	if err := pinProcess(q.CPUs); err != nil {
		return err
	}
	keys := flowsOf(q.Load)
	makeRoom(min(len(keys), ownThreads) + 4)
	connect := connectTCP
	if q.Load.Protocol == "udp" {
		connect = connectUDP
	}
	l, err := connect(ctx, q, keys, func(port int) error { return s.Send(message{Listening: port}) })
	if err != nil {
		return err
	}
	defer l.close()
	if err := s.Send(message{Ready: true}); err != nil {
		return err
	}
	var w record.Window
	if err := s.Recv(&w); err != nil {
		return err
	}
	report, err := l.run(ctx, w, func(g glimpse) error { return s.Send(message{Glimpse: &g}) })
	if err != nil {
		return err
	}
	flows := report.Flows
	report.Flows = nil
	if err := sendResult(s, report); err != nil {
		return err
	}
	for i := range flows {
		if err := sendResult(s, &flows[i]); err != nil {
			return err
		}
	}
	return nil
}

// checkNative answers for this node.
func checkNative(load record.Load) check.Answer {
	if a := checkDescriptors(load); a.State != check.Yes {
		return a
	}
	if load.Protocol != "tcp" {
		return check.OK()
	}
	for _, cc := range congestions(load) {
		if a := checkCongestion(cc); a.State != check.Yes {
			return a
		}
	}
	return check.OK()
}

// checkDescriptors: each flow has a socket, and while connections are made each of these is open twice.
func checkDescriptors(load record.Load) check.Answer {
	need, limit := uint64(len(flowsOf(load))+64), unix.Rlimit{}
	if load.Protocol == "tcp" {
		need *= 2
	}
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return check.CouldNotTell("read the limit of open files: %v", err)
	}
	if limit.Cur < need {
		return check.Not("%d flows need %d open files, and %d are allowed", len(flowsOf(load)), need,
			limit.Cur).
			Hinted("raise the limit, see ulimit -n")
	}
	return check.OK()
}

func checkCongestion(cc string) check.Answer {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return check.CouldNotTell("open a TCP socket: %v", err)
	}
	defer unix.Close(fd)
	err = unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, cc)
	switch err {
	case nil:
		return check.OK()
	case unix.ENOENT:
		return check.Not("congestion control %s: the kernel does not have it", cc).
			Hinted("see /proc/sys/net/ipv4/tcp_available_congestion_control; a module may be missing")
	case unix.EPERM:
		return check.Not("congestion control %s: not allowed for ordinary users", cc).
			Hinted("add it to net.ipv4.tcp_allowed_congestion_control")
	}
	return check.CouldNotTell("congestion control %s: %v", cc, err)
}

// crew is what one thread does: it carries one flow, or several in turn.
type crew interface {
	// run moves data until the phases say that it is over; it returns soon after unblock.
	run(p *phases) error
	name() string // in errors
}

// elsewhere is a crew whose work is done by a thread of its own, and not by that which run is called on.
type elsewhere interface{ thread() int }

// flow is one end of one stream in one direction.
type flow interface {
	// unblock ends the blocking calls of run: at first softly, so that what is under way arrives, then at
	// once.
	unblock(how urgency)
	// sample is called by the meter at each tick; edge tells the window's.
	sample(at int64, edge edge)
	// received is what counts as progress: payload bytes and datagrams.
	received() (bytes, packets int64)
	report() flowReport
	notes() map[string]int64 // further facts: counts are summed over the flows, "…_bytes" are the largest
	close()
}

type urgency int

const (
	softly urgency = iota
	atOnce
)

type edge int

const (
	noEdge edge = iota
	startEdge
	endEdge
)

// phases is the timeline as the threads of one end see it.
type phases struct {
	record.Window
	senders int64       // when senders stop, a little after End
	slack   int64       // ns, how late a sender of frames may begin all that it has to send
	stop    atomic.Bool // abandon everything
}

// A window without a warm-up that is no longer than a sender may wait for its processor is a burst. That
// has a length and a rate, but no time of the day: it begins when the sender has its turn, or not at all.
// Beside an emulator a sender waited for 50 to 80 ms on its run queue: where the kernel shares a core among
// sessions (sched_autogroup), 8 and 11 of some 70 trials fell into such a wait, where it does not, 2 and 1.
const (
	longestBurst  = 100 * time.Millisecond
	burstPatience = 250 * time.Millisecond
)

func newPhases(w record.Window) *phases {
	half := (w.Stop - w.End) / 2
	if w.Begin == w.Start && w.End-w.Start <= int64(longestBurst) {
		slack := min(int64(burstPatience), half)
		return &phases{Window: w, senders: w.End + slack, slack: slack}
	}
	return &phases{Window: w, senders: w.End + min(int64(sendersMargin), half)}
}

// lanes is one end of a whole load.
type lanes struct {
	request request
	keys    []flowKey
	flows   []flow
	crews   []crew // who carry the flows
	quiet   func() // ends what keeps connections alive before the run
	shut    func() // closes what the flows share
	details map[string]string
	mode    func() string // how this end sent and received; asked at the end
}

func (l *lanes) close() {
	if l.quiet != nil {
		l.quiet()
		l.quiet = nil
	}
	for _, f := range l.flows {
		if f != nil {
			f.close()
		}
	}
	l.flows = nil
	if l.shut != nil {
		l.shut()
		l.shut = nil
	}
}

// run follows the timeline and returns what this end saw.
func (l *lanes) run(ctx context.Context, w record.Window, say func(glimpse) error) (*endReport, error) {
	if l.quiet != nil {
		l.quiet()
		l.quiet = nil
	}
	p := newPhases(w)
	flows := l.flows // may outlive close in the watcher of a cancelled context
	m := newMeter(flows, time.Duration(l.request.Load.Interval))
	errs := make([]error, len(l.crews))
	tids := make([]atomic.Int64, len(l.crews))
	var workers sync.WaitGroup
	for i, c := range l.crews {
		workers.Go(func() {
			tid := ownThread()
			if e, ok := c.(elsewhere); ok {
				tid = e.thread()
			}
			tids[i].Store(int64(tid))
			if errs[i] = c.run(p); errs[i] != nil {
				p.stop.Store(true)
				unblock(flows, atOnce)
			}
		})
	}
	// A cancelled context stops the threads; so does the end of the run.
	end := context.AfterFunc(ctx, func() {
		p.stop.Store(true)
		unblock(flows, atOnce)
	})
	var watchers sync.WaitGroup
	watchers.Go(func() { m.run(p, tids) })
	done := make(chan struct{})
	watchers.Go(func() { l.glimpses(done, say) })
	finished := make(chan struct{})
	go func() { // ends with the workers
		workers.Wait()
		close(finished)
	}()
	sleepUntil(p.senders, &p.stop)
	unblock(flows, softly)
	select {
	case <-finished:
	case <-time.After(l.drain(p)):
	}
	unblock(flows, atOnce)
	<-finished
	p.stop.Store(true)
	close(done)
	watchers.Wait()
	end()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	for i, err := range errs {
		if err != nil {
			return nil, fmt.Errorf("%s: %w", l.crews[i].name(), err)
		}
	}
	return l.report(m), nil
}

// drain is how long the flows may take to end by themselves. A stream's bytes that are on their way at the
// window's end do not count, so that it need not wait for them; datagrams do.
func (l *lanes) drain(p *phases) time.Duration {
	at := p.Stop
	if l.request.Load.Protocol == "tcp" && !l.request.Load.Verify {
		at = min(at, p.senders+int64(sendersMargin)/2)
	}
	return time.Duration(at - monotonic())
}

func unblock(flows []flow, how urgency) {
	for _, f := range flows {
		f.unblock(how)
	}
}

// glimpses tells the controller a few times per second what arrived.
func (l *lanes) glimpses(done <-chan struct{}, say func(glimpse) error) {
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	at, bytes, packets := monotonic(), int64(0), int64(0)
	for {
		select {
		case <-done:
			return
		case <-tick.C:
		}
		now, b, n := monotonic(), int64(0), int64(0)
		for _, f := range l.flows {
			fb, fn := f.received()
			b, n = b+fb, n+fn
		}
		seconds := float64(now-at) / 1e9
		g := glimpse{At: now, Bps: 8 * float64(b-bytes) / seconds, PPS: float64(n-packets) / seconds}
		at, bytes, packets = now, b, n
		if say(g) != nil {
			return // the run's end will find out why
		}
	}
}

func (l *lanes) report(m *meter) *endReport {
	r := &endReport{Usage: m.usage(), Details: l.details}
	notes := map[string]int64{}
	for _, f := range l.flows {
		r.Flows = append(r.Flows, f.report())
		for k, v := range f.notes() {
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
	r.Details["timer_late_max_ns"] = strconv.FormatInt(m.lateMax, 10)
	r.Details["mode"] = l.mode()
	r.Details["timer_scheduling"] = m.scheduling
	r.Details["series_interval_ns"] = strconv.FormatInt(m.interval, 10)
	return r
}
