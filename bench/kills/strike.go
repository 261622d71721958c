package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// moment is a stretch of a run in which to strike.
type moment struct {
	name  string
	event string        // awaited event
	phase string        // and its phase, for event "phase"
	span  time.Duration // the blow falls within this after it
}

const undoing = "undo"

// moments are all stretches of a run: beginning, building the lab, the phases
// of a trial, the commit that follows the last of them, and the undoing.
var moments = []moment{
	{name: "start", span: 60 * time.Millisecond},
	{name: "lab", event: "run-started", span: 150 * time.Millisecond},
	{name: "set-up", event: "phase", phase: "set-up", span: 60 * time.Millisecond},
	{name: "verify-path", event: "phase", phase: "verify-path", span: 60 * time.Millisecond},
	{name: "idle-latency", event: "phase", phase: "idle-latency", span: 200 * time.Millisecond},
	{name: "warm-up", event: "phase", phase: "warm-up", span: 100 * time.Millisecond},
	{name: "window", event: "phase", phase: "window", span: 400 * time.Millisecond},
	{name: "drain", event: "phase", phase: "drain", span: 60 * time.Millisecond},
	{name: "collect", event: "phase", phase: "collect", span: 10 * time.Millisecond},
	{name: "commit", event: "phase", phase: "collect", span: 60 * time.Millisecond},
	{name: undoing, event: "phase", phase: "window", span: 400 * time.Millisecond},
	{name: "end", event: "run-ended", span: 100 * time.Millisecond},
}

// event is what is needed of a line of run --json.
type event struct {
	Event, Phase, Row, Run, Status string
	Index                          int
}

// told is what a run said before it ended.
type told struct {
	run      string
	finished []string // rows whose trial was reported as ended, in order
	code     int
	talk     string
}

const (
	patience  = 90 * time.Second // for a run to reach its moment
	stopping  = 5 * time.Second  // for a signalled run to end: 3 promised, 2 for a slow machine
	vanishing = 5 * time.Second  // for the kernel to remove what it must
)

func (o options) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, o.program, args...)
	at := func(name string) string { return filepath.Join(o.dir, name) }
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + at("home"), "XDG_DATA_HOME=" + at("data"), "XDG_STATE_HOME=" + at("state"),
		"XDG_RUNTIME_DIR=" + at("run"), "XDG_CONFIG_HOME=" + at("config"), "TMPDIR=" + at("tmp"),
	}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if o.uid != 0 {
		id := uint32(o.uid)
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: id, Gid: id}
	}
	return cmd
}

// strike starts a run, ends it as planned, and lists what is wrong after.
func strike(ctx context.Context, o options, b blow, before machine) (faults []string, hit bool) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	known, err := storedRuns(ctx, o)
	if err != nil {
		return []string{err.Error()}, true
	}
	t, hit, err := killOne(ctx, o, b)
	if err != nil {
		faults = append(faults, err.Error())
	}
	last := b.signal
	if b.then != 0 {
		last = b.then
	}
	if hit && last != syscall.SIGKILL && t.code != 130 && b.phase != "end" {
		faults = append(faults, fmt.Sprintf("exit code %d, want 130: %s", t.code, t.talk))
	}
	if out, err := o.command(context.Background(), "lab", "restore").CombinedOutput(); err != nil {
		faults = append(faults, fmt.Sprintf("lab restore: %v: %s", err, out))
	}
	faults = append(faults, leftBehind(before)...)
	return append(faults, checkStore(context.Background(), o, known, t)...), hit
}

// killOne runs the plan until the moment, and strikes.
func killOne(ctx context.Context, o options, b blow) (told, bool, error) {
	cmd := o.command(ctx, "run", filepath.Join(o.dir, "kills.yaml"), "--json")
	var talk strings.Builder
	cmd.Stderr = &talk
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return told{}, false, err
	}
	if err := cmd.Start(); err != nil {
		return told{}, false, err
	}
	w := watcher{blow: b, struck: make(chan error, 1)}
	for _, m := range moments {
		if m.name == b.phase {
			w.moment = m
		}
	}
	if w.moment.event == "" {
		w.strikeLater(cmd.Process)
	}
	w.read(stdout, cmd.Process)
	late := w.ended()
	var exit *exec.ExitError
	if err := cmd.Wait(); err != nil && !errors.As(err, &exit) {
		return w.told, w.hit, err
	}
	w.told.code, w.told.talk = cmd.ProcessState.ExitCode(), talk.String()
	if ctx.Err() != nil {
		return w.told, w.hit, fmt.Errorf("the run did not end in %s: %s", patience, talk.String())
	}
	return w.told, w.hit, late
}

// watcher follows the events of a run up to the blow, and beyond it to the
// end of the output.
type watcher struct {
	blow   blow
	moment moment
	told   told
	trial  int
	hit    bool
	at     time.Time
	struck chan error
}

func (w *watcher) read(stdout io.Reader, p *os.Process) {
	lines := bufio.NewReaderSize(stdout, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		var e event
		if json.Unmarshal(line, &e) == nil {
			w.take(e, p)
		}
		if err != nil {
			return
		}
	}
}

func (w *watcher) take(e event, p *os.Process) {
	switch e.Event {
	case "run-started":
		w.told.run = e.Run
	case "trial-started":
		w.trial++
	case "trial-ended":
		w.told.finished = append(w.told.finished, e.Row)
	}
	// Not every trial has every phase (idle latency comes once per path and
	// block), so the first one at or after the planned trial is taken.
	inTrial := w.moment.event != "phase" || w.trial >= w.blow.trial
	if !w.hit && e.Event == w.moment.event && e.Phase == w.moment.phase && inTrial {
		w.strikeLater(p)
	}
}

func (w *watcher) strikeLater(p *os.Process) {
	w.hit = true
	go func() {
		time.Sleep(w.blow.after)
		w.at = time.Now()
		err := p.Signal(w.blow.signal)
		if w.blow.then != 0 {
			time.Sleep(w.blow.pause)
			// It may have ended in the meantime, which is all right.
			if again := p.Signal(w.blow.then); again != nil && !errors.Is(again, os.ErrProcessDone) {
				err = again
			}
		}
		w.struck <- err
	}()
}

// ended is called once the output has ended, and says if that took too long.
func (w *watcher) ended() error {
	if !w.hit {
		return nil
	}
	if err := <-w.struck; err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal the run: %v", err)
	}
	if took := time.Since(w.at); took > stopping {
		return fmt.Errorf("it took %s to end, %s are allowed", took.Round(time.Millisecond), stopping)
	}
	return nil
}
