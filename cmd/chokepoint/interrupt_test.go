package main

import (
	"bufio"
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// started observes a run under way from outside.
type started struct {
	cmd    *exec.Cmd
	env    []string
	events *bufio.Scanner
	stderr bytes.Buffer
}

// startRun starts a run of six trials that prints events, with directories of its own.
func startRun(t *testing.T) *started {
	t.Helper()
	return start(t, "run")
}

// start starts a command with a plan of six trials and further arguments, as startRun does.
func start(t *testing.T, command string, more ...string) *started {
	t.Helper()
	root, err := scriptCondition("root")
	if err != nil {
		t.Fatal(err)
	}

	if userns, err := scriptCondition("userns"); err != nil || !root && !userns {
		t.Skip("skip: neither root nor user namespaces")
	}

	// The command that testscript made of this test binary.
	program, err := exec.LookPath("chokepoint")
	if err != nil {
		t.Fatal(err)
	}

	dir := t.TempDir()
	plan := filepath.Join(dir, "plan.yaml")
	text := "method: {duration: 400ms, warmup: 0, cooldown: 0, runs: 3}\nmatrix: {streams: [1, 2]}\n" +
		"measure: {verify: false, latency_idle: off, telemetry: false}\n"
	if err := os.WriteFile(plan, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}

	s := &started{cmd: exec.Command(program, append([]string{command, plan, "--json"}, more...)...)}
	s.env = append(os.Environ(), "XDG_DATA_HOME="+dir, "XDG_STATE_HOME="+dir+"/state", "XDG_RUNTIME_DIR="+dir,
		"GORACE="+noExitSleep)
	s.cmd.Env, s.cmd.Stderr = s.env, &s.stderr
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}

	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { s.cmd.Process.Kill() }) // no more than an error once it has ended
	s.events = bufio.NewScanner(out)
	s.events.Buffer(nil, 16<<20)
	return s
}

// await reads events until one holds all words.
func (s *started) await(t *testing.T, words ...string) {
	t.Helper()
	for s.events.Scan() {
		all := true
		for _, w := range words {
			all = all && strings.Contains(s.events.Text(), w)
		}

		if all {
			return
		}
	}

	t.Fatalf("events ended before one with %q: %v, %s", words, s.events.Err(), s.stderr.String())
}

// rest reads what is still printed, and the exit code.
func (s *started) rest(t *testing.T) (last string, code int) {
	t.Helper()
	for s.events.Scan() {
		last = s.events.Text()
	}

	err := s.cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}

	return last, s.cmd.ProcessState.ExitCode()
}

// then runs another command in the run's directories.
func (s *started) then(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command(s.cmd.Path, args...)
	cmd.Env = s.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("chokepoint %s: got %v, want success: %s", strings.Join(args, " "), err, out)
	}

	return string(out)
}

func TestFirstInterruptKeepsWhatIsFinished(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			s := startRun(t)
			s.await(t, `"event":"trial-ended"`)
			s.await(t, `"event":"phase"`, `"phase":"window"`)
			sent := time.Now()
			if err := s.cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}

			last, code := s.rest(t)
			took := time.Since(sent)
			if took > 3*time.Second {
				t.Errorf("time to end: got %v, want at most 3 s", took)
			}

			if code != codeInterrupted {
				t.Errorf("exit code: got %d, want %d: %s", code, codeInterrupted, s.stderr.String())
			}

			if !strings.HasPrefix(last, `{"format":"chokepoint/1"`) || !strings.Contains(last,
				`"status":"interrupted"`) {
				t.Errorf("last line: got %.200s, want the document of an interrupted run", last)
			}

			if got := s.then(t, "list"); !strings.Contains(got, "interrupted") {
				t.Errorf("list: got %q, want an interrupted run", got)
			}

			if got := s.then(t, "lab", "list") + s.then(t, "lab", "restore"); got != "nothing to restore\n" {
				t.Errorf("left behind: got %q, want nothing", got)
			}
		})
	}
}

// TestInterruptOfTune: as found and while a change is tried it leaves nothing behind, and proposes nothing.
func TestInterruptOfTune(t *testing.T) {
	for name, awaited := range map[string][]string{
		"as found":       {`"event":"trial-ended"`},
		"while it tries": {`"text":"tune-plan"`, `"phase":"window"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, "tune", "--only", "--try", "queue@router.wan=pfifo limit 100",
				"--set", "method.idle=100ms",
				"--set", "method.duration=100ms")
			for _, word := range awaited {
				s.await(t, word)
			}

			if err := s.cmd.Process.Signal(syscall.SIGINT); err != nil {
				t.Fatal(err)
			}

			last, code := s.rest(t)
			if code != codeInterrupted {
				t.Errorf("exit code: got %d, want %d: %s", code, codeInterrupted, s.stderr.String())
			}

			if !strings.Contains(last, `"ended":"interrupted"`) || !strings.Contains(last, `"kept":null`) {
				t.Errorf("last line: got %.300s, want a result that proposes nothing", last)
			}

			got := s.then(t, "lab", "list") + s.then(t, "lab", "restore")
			if got != "nothing to restore\n" {
				t.Errorf("left behind: got %q, want nothing", got)
			}
		})
	}
}

func TestTwoInterruptsAtOnceLeaveNothingThatRestoreCannotClear(t *testing.T) {
	t.Parallel()
	s := startRun(t)
	s.await(t, `"event":"phase"`, `"phase":"window"`)
	for range 2 {
		if err := s.cmd.Process.Signal(syscall.SIGINT); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Fatal(err)
		}

		time.Sleep(sameRequest + 10*time.Millisecond) // sooner it would be the same request
	}

	_, code := s.rest(t)
	if code != codeInterrupted && code != codeDirty {
		t.Errorf("exit code: got %d, want %d or %d: %s", code, codeInterrupted, codeDirty, s.stderr.String())
	}

	// The lab may be dying by itself while restore undoes what is in it: then restore says to try again,
	// and the next one finds it gone.
	for range 3 {
		cmd := exec.Command(s.cmd.Path, "lab", "restore")
		cmd.Env = s.env
		if cmd.Run() == nil {
			break
		}
	}

	if got := s.then(t, "lab", "restore"); got != "nothing to restore\n" {
		t.Errorf("restore: got %q, want nothing left", got)
	}

	if got := s.then(t, "lab", "list"); got != "" {
		t.Errorf("labs: got %q, want none", got)
	}

	s.then(t, "list")
}
