package frames

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
	"github.com/chokepoint-lab/chokepoint/internal/probe/bpf"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

const maxNice = 19

// xdpSender is a thread that sends the test-run frames of some flows.
type xdpSender struct {
	*xdpPort
	frames *bpf.Frames
	share  bpf.Load
	core   int   // core to which the thread is restricted; -1 means unknown
	wait   int64 // delay of the thread's first burst in ns, so that threads do not all send at once
	tid    int   // id of the thread
	polite bool  // the thread has low priority until the timeline is set
	done   chan error
	begin  int64 // time when the thread's first burst was due
	ended  int64 // time when the thread had finished
	waited int64 // time in ns that the thread waited for its core since it knew the timeline
	taken  int64 // number of frames that the device sent or dropped during Run

	last bpf.Sent // belongs to the meter until the run has ended
}

// shares distributes the flows of an endpoint among threads that send test-run frames, one thread per
// core. A virtual link puts frames sent on a core into the receive queue with that core's number. Two
// cores with the same queue would obstruct each other, so there are no more threads than queues. All
// frames of a flow are sent by the same thread, because frames sent by different threads could overtake
// each other.
func (p *xdpPort) shares() []*xdpSender {
	cpus := traffic.AllowedCPUs()
	if p.request.Load.Direction == record.Both { // use half, because the other end may use the same cores
		half := max(len(cpus)/2, 1)
		if p.request.Side == "near" {
			cpus = cpus[len(cpus)-min(half, len(cpus)):]
		} else {
			cpus = cpus[:min(half, len(cpus))]
		}
	}

	if p.request.Side == "near" {
		slices.Reverse(cpus)
	}

	flows := len(p.load.Send)
	threads := max(1, min(p.hop.RxQueues, len(cpus), flows))
	burst, _ := bpf.BurstOf(p.load.PPS / float64(threads))
	var list []*xdpSender
	for i := range threads {
		s := &xdpSender{xdpPort: p, share: p.load, core: -1}
		from := i * flows / threads
		to := (i + 1) * flows / threads
		s.share.Send = p.load.Send[from:to]
		s.share.Base = from
		s.share.Receive = nil
		s.share.PPS = p.load.PPS * float64(to-from) / float64(flows)
		if p.load.PPS > 0 {
			s.wait = int64(float64(i*burst) / p.load.PPS * 1e9)
		}

		if i < len(cpus) {
			s.core = cpus[i]
		}

		list = append(list, s)
	}

	return list
}

func (*xdpSender) Name() string { return "a sender of frames" }

// enter starts the thread, which enters the kernel at once. Run sets the timeline later. This keeps the
// kernel's start-up time, which grows with the number of senders, from delaying the load.
func (s *xdpSender) enter() {
	s.done = make(chan error, 1)
	started := make(chan int)
	go func() {
		tid := traffic.OwnThread()
		s.polite = unix.Setpriority(unix.PRIO_PROCESS, 0, maxNice) == nil &&
			unix.Setpriority(unix.PRIO_PROCESS, 0, 0) == nil &&
			unix.Setpriority(unix.PRIO_PROCESS, 0, maxNice) == nil
		started <- tid
		if err := pinThread(s.core); err != nil {
			s.done <- err
			return
		}

		err := s.frames.Send()
		s.ended, s.waited = traffic.Monotonic(), runDelay(tid)
		s.done <- err
	}()
	s.tid = <-started
}

// awaitRunning waits until the thread is ready to send.
func (s *xdpSender) awaitRunning() error {
	for until := traffic.Monotonic() +
		int64(traffic.SetUp)/2; traffic.Monotonic() < until; time.Sleep(time.Millisecond) {
		select {
		case err := <-s.done:
			s.done <- err
			return cmp.Or(err, errors.New("send frames: the thread ended before the load"))
		default:
		}

		if runs, err := s.frames.Runs(); runs || err != nil {
			return err
		}
	}
	return fmt.Errorf("send frames by %s: the kernel has not begun within %v", s.hop.Device, traffic.SetUp/2)
}

// leave stops the thread, if it was started.
func (s *xdpSender) leave() {
	if s.done != nil {
		s.frames.Stop()
		err := <-s.done
		s.done <- err
	}
}

// Thread returns the id of the sending thread.
func (s *xdpSender) Thread() int { return s.tid }

func (s *xdpSender) Run(ph *traffic.Phases) error {
	before, err := kernel.Counters(s.hop.Device)
	if err != nil {
		return err
	}

	s.begin = ph.Begin + s.wait
	waited := runDelay(s.tid)
	if err := s.frames.Schedule(bpf.Timeline{
		Begin: s.begin,
		Start: ph.Start,
		End:   ph.End,
		Stop:  ph.Senders,
		Slack: ph.Slack,
	}); err != nil {
		return err
	}

	if s.polite {
		if err := unix.Setpriority(unix.PRIO_PROCESS, s.tid, 0); err != nil {
			return fmt.Errorf("restore the priority of the frame sender: %w", err)
		}
	}

	err = <-s.done
	s.done <- err // value for leave
	s.waited -= waited
	after, failed := kernel.Counters(s.hop.Device)
	s.taken = int64(after.TxPackets-before.TxPackets) + int64(after.TxDropped-before.TxDropped)
	return errors.Join(err, failed)
}

// runDelay returns the time in ns for which a thread of this process has waited for a CPU since the thread
// started (Documentation/scheduler/sched-stats.rst). It returns 0 if the kernel does not report the time.
func runDelay(tid int) int64 {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/schedstat", tid))
	f := strings.Fields(string(b))
	if len(f) < 2 {
		return 0
	}

	ns, _ := strconv.ParseInt(f[1], 10, 64)
	return ns
}

// refresh reads the counts of frames that the thread has sent.
func (s *xdpSender) refresh() error {
	now, err := s.frames.Sent()
	if err != nil {
		return err
	}

	for i := range now.Flows {
		for phase := range now.Flows[i] {
			var before uint32
			if i < len(s.last.Flows) {
				before = s.last.Flows[i][phase]
			}

			s.sent[s.share.Base+i][phase] += int64(now.Flows[i][phase] - before) // correct modulo 2^32
		}
	}

	s.last = now
	return nil
}

// describeSenders describes how the threads send frames, and lists the threads' cores.
func describeSenders(list []*xdpSender) (what, cores string) {
	burst, stamped := bpf.BurstOf(list[0].share.PPS)
	threads := "one thread"
	if len(list) > 1 {
		threads = fmt.Sprintf("%d threads", len(list))
	}

	for _, s := range list {
		cores += " " + strconv.Itoa(s.core)
	}

	return fmt.Sprintf("BPF test-run frames from %s, bursts of %d, one frame in %d with its time", threads,
		burst, stamped), cores[1:]
}
