package main

import (
	"bufio"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/labtest/apart"
)

// killedBed is a testbed whose service is killed again and again.
type killedBed struct {
	program, dir, file, version string
	env                         []string
	cmd                         *exec.Cmd
	ended                       chan string // ids of jobs
	last                        chan string // last line of a service that has ended
	over                        chan error
}

var (
	jobEnded = regexp.MustCompile(`job (trigger-builds-[0-9a-f]+): (?:done|failed|cancelled)$`)
	bedKills = 2 // .ci/nightly kills-bed: CHOKEPOINT_KILLS
)

// newKilledBed returns a testbed in directories of its own. more is added to its file.
func newKilledBed(t *testing.T, more string) *killedBed {
	t.Helper()
	root, err := scriptCondition("root")
	if err != nil {
		t.Fatal(err)
	}

	if userns, err := scriptCondition("userns"); err != nil || !root && !userns {
		t.Skip("skip: neither root nor user namespaces")
	}

	program, err := exec.LookPath("chokepoint")
	if err != nil {
		t.Fatal(err)
	}

	dir := t.TempDir()
	b := &killedBed{program: program, dir: dir, file: filepath.Join(dir, "bed.yaml"),
		version: filepath.Join(dir, "version"), ended: make(chan string, 1000),
		last: make(chan string, 1000)}
	for name, text := range map[string]string{
		"plan.yaml": "name: tiny\nmethod: {duration: 200ms, warmup: 0, cooldown: 0, runs: 2}\n" +
			"matrix: {streams: [1, 2]}\n" +
			"measure: {verify: false, latency_idle: off, telemetry: false}\n",
		"bed.yaml": "name: killed\nplans: {tiny: plan.yaml}\n" +
			"triggers:\n  builds: {command: [./latest], plans: [tiny], every: 1s}\n" + more,
		"latest": "#!/bin/sh\nexec cat " + b.version + "\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}

	b.build(t, 0)
	b.env = append(os.Environ(), "XDG_DATA_HOME="+dir, "XDG_STATE_HOME="+dir+"/state", "XDG_RUNTIME_DIR="+dir,
		"GORACE="+noExitSleep)
	return b
}

// build makes another version, for which the trigger starts a job.
func (b *killedBed) build(t *testing.T, n int) {
	t.Helper()
	if err := os.WriteFile(b.version+"~", fmt.Appendf(nil, "v%d\n", n), 0o600); err != nil {
		t.Fatal(err)
	}

	if err := os.Rename(b.version+"~", b.version); err != nil {
		t.Fatal(err)
	}
}

// start starts the service.
func (b *killedBed) start(t *testing.T) {
	t.Helper()
	b.cmd = exec.Command(b.program, "bed", b.file)
	b.cmd.Env = b.env
	errs, err := b.cmd.StderrPipe()
	if err == nil {
		err = b.cmd.Start()
	}

	if err != nil {
		t.Fatal(err)
	}

	b.over = make(chan error, 1)
	go func(cmd *exec.Cmd, over chan error) {
		last := ""
		for lines := bufio.NewScanner(errs); lines.Scan(); {
			last = lines.Text()
			if m := jobEnded.FindStringSubmatch(lines.Text()); m != nil {
				b.ended <- m[1]
			}
		}
		b.last <- last
		over <- cmd.Wait()
	}(b.cmd, b.over)
	t.Cleanup(func() { b.cmd.Process.Kill() }) // no more than an error once it has ended
}

// end sends a signal and waits until the service has ended.
func (b *killedBed) end(t *testing.T, s syscall.Signal) error {
	t.Helper()
	if err := b.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Fatal(err)
	}

	select {
	case err := <-b.over:
		return err
	case <-time.After(time.Minute):
		t.Fatal("the service does not end")
		return nil
	}
}

func (b *killedBed) run(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command(b.program, args...)
	cmd.Env = b.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("chokepoint %s: got %v, want success: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// killed kills the service n times, makes a new version with every second kill, and checks that each job
// ended with one whole run. crash crashes what else may crash, in place of every second kill.
func (b *killedBed) killed(t *testing.T, n int, crash func()) {
	t.Helper()
	random := rand.New(rand.NewPCG(1, uint64(n)))
	b.start(t)
	last := 0
	for i := range n {
		time.Sleep(time.Duration(random.Float64() * float64(3*time.Second)))
		select {
		case err := <-b.over: // systemd starts it again, too
			t.Logf("kill %d: the service had ended by itself: %v: %s", i+1, err, <-b.last)
			b.start(t)
		default:
		}

		if crash != nil && i%2 == 1 {
			crash()
			last++
			b.build(t, last)
			continue
		}

		_ = b.end(t, syscall.SIGKILL) // the error says that it was killed
		<-b.last
		if i%2 == 1 {
			last++
			b.build(t, last)
		}

		b.start(t)
	}

	b.settle(t, last)
	var runs, trials []int
	for line := range strings.Lines(b.run(t, "list", "--json")) {
		var h struct {
			ID     string
			Status string
			Trials int
			Notes  []string
		}
		if err := json.Unmarshal([]byte(line), &h); err != nil || h.Status != "done" || len(h.Notes) != 2 {
			t.Errorf("run %+v, %v: want that it is done and names its job", h, err)
			continue
		}

		version, err := strconv.Atoi(strings.TrimPrefix(h.Notes[1], "command v"))
		if err != nil {
			t.Error(err)
		}

		var d struct{ Trials []struct{ Kind string } }
		if err := json.Unmarshal([]byte(b.run(t, "show", "--json", h.ID)), &d); err != nil {
			t.Error(err)
		}

		runs, trials = append(runs, version), append(trials, len(d.Trials))
	}

	t.Logf("%d kills: versions of the runs %v, their trials %v", n, runs, trials)
	seen := map[int]bool{}
	for i, v := range runs {
		if seen[v] || trials[i] != 4 {
			t.Errorf("version %d: measured twice, or with %d trials instead of 4", v, trials[i])
		}
		seen[v] = true
	}

	// The trigger may have missed a version that was replaced within its second, but not the last one.
	if !seen[last] {
		t.Errorf("version %d was not measured", last)
	}

	if text := b.run(t, "lab", "restore"); !strings.Contains(text, "nothing to restore") {
		t.Errorf("left behind: %s", text)
	}
}

// settle waits until the job of the last version has ended, which is the last one, and ends the service.
func (b *killedBed) settle(t *testing.T, n int) {
	t.Helper()
	last := fmt.Sprintf("trigger-builds-%.12x", sha256.Sum256(fmt.Appendf(nil, "v%d", n)))
	for late := time.After(2*time.Minute + time.Duration(n)*20*time.Second); ; {
		select {
		case id := <-b.ended:
			if id != last {
				continue
			}

			if err := b.end(t, syscall.SIGTERM); err != nil {
				t.Errorf("SIGTERM: got %v, want exit code 0", err)
			}
			return
		case err := <-b.over:
			t.Fatalf("the service has ended: %v: %s", err, <-b.last)
		case <-late:
			t.Fatalf("job %s does not end", last)
		}
	}
}

func kills(t *testing.T) int {
	text := os.Getenv("CHOKEPOINT_KILLS")
	if text == "" {
		return bedKills
	}

	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A job whose service is killed goes on where it was, and measures no trial twice.
func TestBedKilled(t *testing.T) {
	t.Parallel()
	newKilledBed(t, "").killed(t, kills(t), nil)
}

// So it does if the database of its jobs and of the team's runs crashes, too.
func TestBedKilledWithDatabase(t *testing.T) {
	if os.Getenv("CHOKEPOINT_KILLS") == "" {
		t.Skip("skip: only with CHOKEPOINT_KILLS, by .ci/nightly")
	}

	jobs, runs := apart.Postgres(t), apart.Postgres(t)
	b := newKilledBed(t, fmt.Sprintf("database: %q\nstore: %q\n", jobs, runs))
	b.killed(t, kills(t), func() {
		if err := apart.CrashPostgres(); err != nil {
			t.Error(err)
		}
	})
}
