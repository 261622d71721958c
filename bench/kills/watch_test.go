package kills_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// event holds what is needed of a line of run --json.
type event struct {
	Event, Phase, Row, Run string
	Index, Total           int
}

// told holds what a run said before it ended.
type told struct {
	run      string
	rows     int      // of the plan
	begun    int      // trials
	finished []string // rows whose trial was reported as ended, in order
	ended    bool     // it said so
	code     int      // −1: by a signal
	talk     string
	stopped  time.Duration // from the first signal to the end of the process
}

// watcher follows the events of one run, remembers its stretches, and strikes when the moment has come.
type watcher struct {
	*scene
	blow   *blow // nil: only watch
	target stretch
	scale  float64 // of the delay within the stretch
	run    *os.Process
	told   told
	passed []stretch
	since  time.Time // the present one lasts

	mu  sync.Mutex // the present stretch is shared with the striking goroutine
	now stretch

	armed  bool
	blows  sync.WaitGroup // the strike, which sets:
	struck time.Time
	hit    string // the stretch that was hit, "" if none was
}

// follow runs the program to its end, and collects the namespaces of its processes.
func (w *watcher) follow(args ...string) {
	wait, _ := patience()
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	cmd := w.Command(ctx, args...)
	var talk strings.Builder
	cmd.Stderr = &talk
	stdout, err := cmd.StdoutPipe()
	w.since = time.Now()
	if err := errors.Join(err, cmd.Start()); err != nil {
		w.Fatal(err)
	}

	w.run = cmd.Process
	over := make(chan struct{})
	var watched sync.WaitGroup
	watched.Go(func() {
		for {
			w.namespacesOf(w.T, w.namespaces)
			select {
			case <-over:
				return
			case <-time.After(30 * time.Millisecond):
			}
		}
	})
	w.enter(atStart, 0)
	for lines := bufio.NewReaderSize(stdout, 1<<20); err == nil; {
		var line []byte
		line, err = lines.ReadBytes('\n')
		var e event
		if json.Unmarshal(line, &e) == nil {
			w.take(e)
		}
	}

	err = cmd.Wait()
	end := time.Now()
	w.enter("", 0)
	w.blows.Wait()
	close(over)
	watched.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		w.Error(err)
	}

	w.told.code, w.told.talk = cmd.ProcessState.ExitCode(), talk.String()
	if !w.struck.IsZero() {
		w.told.stopped = end.Sub(w.struck)
	}

	if ctx.Err() != nil {
		w.Errorf("the run did not end in %s: %s", wait, talk.String())
	}
}

func (w *watcher) take(e event) {
	switch t := &w.told; {
	case e.Event == "run-started":
		t.run = e.Run
		w.enter(inLab, 0)
	case e.Event == "trial-started":
		t.begun++
	case e.Event == "phase" && e.Phase == "tester ceiling":
		w.enter(inCeiling, 0)
	case e.Event == "phase":
		w.enter(e.Phase, t.begun)
	case e.Event == "trial-ended":
		t.finished = append(t.finished, e.Row)
		t.rows = e.Total
		if e.Index == e.Total {
			w.enter(inUndo, 0)
		} else {
			w.enter(between, 0)
		}
	case e.Event == "run-ended":
		t.ended = true
		w.enter(inReport, 0)
	}
}

// enter notes that a stretch ends and the next one begins.
func (w *watcher) enter(name string, trial int) {
	at := time.Now()
	w.mu.Lock()
	last := w.now
	w.now = stretch{name: name, trial: trial}
	w.mu.Unlock()
	if last.name != "" {
		last.span = at.Sub(w.since)
		w.passed = append(w.passed, last)
	}

	w.since = at
	if w.blow != nil && !w.armed && name == w.target.name && trial == w.target.trial {
		w.armed = true
		w.blows.Go(w.strike)
	}
}

// stretch is the name of the present one.
func (w *watcher) stretch() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now.name
}

// strike waits for the moment within the stretch and sends the signals.
func (w *watcher) strike() {
	b := w.blow
	if b.moment == inCommit {
		defer aheadOfAll()()
		w.awaitWriting()
		for began := time.Now(); time.Since(began) < w.delay(500*time.Microsecond); {
			continue // a commit takes less than a sleep
		}
	} else {
		time.Sleep(w.delay(w.target.span))
	}

	hit := w.stretch()
	w.struck = time.Now()
	first := b.signal
	if b.moment == inStopping {
		first = syscall.SIGINT
	}

	switch {
	case hit == "":
		return // it had ended
	case b.victim != "":
		if w.killVictim(w.T, b.victim) {
			w.hit = b.moment
		}
		return
	case w.run.Signal(first) != nil:
		return
	case hit == atStart && b.moment == inBuild, hit == "collect" && b.moment == inCommit:
		hit = b.moment
	}

	if b.moment == inStopping {
		// The time a stop takes is 20 to 200 ms.
		time.Sleep(2*time.Millisecond + w.delay(100*time.Millisecond))
		if w.run.Signal(b.signal) == nil && hit == "window" {
			hit = inStopping
		}
	} else if b.again > 0 {
		time.Sleep(b.again)
		_ = w.run.Signal(b.signal) // it may have ended, which is all right
	}

	w.hit = hit
}

// delay is the part of a stretch that passes before the blow.
func (w *watcher) delay(span time.Duration) time.Duration {
	return time.Duration(w.scale * w.blow.within * float64(span))
}

// aheadOfAll keeps the goroutine on a thread that other processes do not hold up, where that is allowed,
// until the returned function is called: on a busy machine a commit is over before an ordinary thread has
// its turn.
func aheadOfAll() (end func()) {
	runtime.LockOSThread()
	was, err := unix.SchedGetAttr(0, 0)
	if err == nil {
		err = unix.SchedSetAttr(0, &unix.SchedAttr{
			Size:     unix.SizeofSchedAttr,
			Policy:   unix.SCHED_FIFO,
			Priority: 1,
		}, 0)
	}

	return func() {
		if err == nil && unix.SchedSetAttr(0, was, 0) != nil {
			return // the thread ends with its goroutine
		}

		runtime.UnlockOSThread()
	}
}

// awaitWriting returns when the store's write-ahead log changes, or when the trial is reported as stored.
func (w *watcher) awaitWriting() {
	log := w.At("data/chokepoint/runs.db-wal")
	look := func() (size, when int64) {
		if info, err := os.Stat(log); err == nil {
			return info.Size(), info.ModTime().UnixNano()
		}
		return 0, 0
	}
	size, when := look()
	for w.stretch() == "collect" {
		s, m := look()
		if s != size || m != when {
			return
		}

		runtime.Gosched() // a commit takes less than a sleep
	}
}
