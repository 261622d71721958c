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

// event is what is needed of a line of run --json.
type event struct {
	Event, Phase, Row, Run string
	Index, Total           int
}

// told is what a run said before it ended.
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

	mu     sync.Mutex // what follows is shared with the striking goroutine
	told   told
	now    stretch
	since  time.Time
	passed []stretch
	armed  bool
	hit    string // the stretch that was hit, "" if none was
	struck time.Time
	blows  sync.WaitGroup
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
	w.mu.Lock()
	t := &w.told
	trial := t.begun
	switch e.Event {
	case "run-started":
		t.run = e.Run
	case "trial-started":
		t.begun++
	case "trial-ended":
		t.finished, t.rows = append(t.finished, e.Row), e.Total
	case "run-ended":
		t.ended = true
	}
	last := e.Index == e.Total
	w.mu.Unlock()
	switch {
	case e.Event == "run-started":
		w.enter(inLab, 0)
	case e.Event == "phase" && e.Phase == "tester ceiling":
		w.enter(inCeiling, 0)
	case e.Event == "phase":
		w.enter(e.Phase, trial)
	case e.Event == "trial-ended" && last:
		w.enter(inUndo, 0)
	case e.Event == "trial-ended":
		w.enter(between, 0)
	case e.Event == "run-ended":
		w.enter(inReport, 0)
	}
}

// enter notes that a stretch ends and the next one begins.
func (w *watcher) enter(name string, trial int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := time.Now()
	if w.now.name != "" {
		w.now.span = at.Sub(w.since)
		w.passed = append(w.passed, w.now)
	}
	w.now, w.since = stretch{name: name, trial: trial}, at
	if w.blow == nil || w.armed || name != w.target.name || trial != w.target.trial {
		return
	}
	w.armed = true
	w.blows.Go(w.strike)
}

// strike waits for the moment within the stretch and sends the signals.
func (w *watcher) strike() {
	if w.blow.moment == inCommit {
		defer aheadOfAll()()
		w.awaitWriting()
		spin(w.delay(500 * time.Microsecond)) // a commit's
	} else {
		time.Sleep(w.delay(w.target.span))
	}
	w.mu.Lock()
	hit := w.now.name
	w.struck = time.Now()
	w.mu.Unlock()
	first := w.blow.signal
	if w.blow.moment == inStopping {
		first = syscall.SIGINT
	}
	if w.blow.victim != "" {
		if hit != "" && w.killVictim(w.T, w.blow.victim) {
			w.mu.Lock()
			w.hit = w.blow.moment
			w.mu.Unlock()
		}
		return
	}
	if hit == "" || w.run.Signal(first) != nil {
		return // it had ended
	}
	if hit == atStart && w.blow.moment == inBuild {
		hit = inBuild
	}
	if hit == "collect" && w.blow.moment == inCommit {
		hit = inCommit
	}
	if w.blow.moment == inStopping {
		// The time a stop takes is 20 to 200 ms.
		time.Sleep(2*time.Millisecond + w.delay(100*time.Millisecond))
		if w.run.Signal(w.blow.signal) == nil && hit == "window" {
			hit = inStopping
		}
	} else if w.blow.again > 0 {
		time.Sleep(w.blow.again)
		_ = w.run.Signal(w.blow.signal) // it may have ended, which is all right
	}
	w.mu.Lock()
	w.hit = hit
	w.mu.Unlock()
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
		err = unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO,
			Priority: 1}, 0)
	}
	return func() {
		if err == nil && unix.SchedSetAttr(0, was, 0) != nil {
			return // the thread ends with its goroutine
		}
		runtime.UnlockOSThread()
	}
}

// spin is a sleep of less than a sleep takes.
func spin(d time.Duration) {
	for began := time.Now(); time.Since(began) < d; {
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
	for {
		w.mu.Lock()
		over := w.now.name != "collect"
		w.mu.Unlock()
		if s, m := look(); over || s != size || m != when {
			return
		}
		runtime.Gosched() // a commit takes less than a sleep
	}
}
