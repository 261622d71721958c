// Package killed kills the service of a testbed at random moments, and what the service needs, and checks
// that each job continued where it was.
package killed

import (
	"bufio"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Bed is a testbed. A trigger starts a job for each version, and a version is made when the job of the one
// before it has ended, so that a job nearly always runs.
type Bed struct {
	Dir     string // of the bed file, its plan and its log
	Trials  int    // of a run
	Team    string // the team's store, or ""
	Random  *rand.Rand
	Pause   time.Duration                  // longest time between two kills
	Command func(args ...string) *exec.Cmd // of chokepoint
	Faults  map[string]func()              // that are drawn like a kill of the service, by name

	version int // last one
	died    int // times, in its job
	cmd     *exec.Cmd
	log     *os.File
	ended   chan string // ids of jobs
	last    string      // line that the service has written
	over    chan error
}

// jobTime limits the time of a job, including the pauses before it tries a step again.
const jobTime = 15 * time.Minute

// mayDie limits the kills of the service in one job, if something else can be killed instead. A job fails on
// purpose if the service has died five times in a step without a new trial.
const mayDie = 4

// Write writes the files of the testbed. more is added to the bed file.
func (b *Bed) Write(t testing.TB, plan, more string) {
	t.Helper()
	for name, text := range map[string]string{
		"plan.yaml": plan,
		"bed.yaml": "name: killed\nplans: {tiny: plan.yaml}\n" +
			"triggers:\n  builds: {command: [./latest], plans: [tiny], every: 1s}\n" + more,
		"latest": "#!/bin/sh\nexec cat " + b.at("version") + "\n",
	} {
		if err := os.WriteFile(b.at(name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
}

func (b *Bed) at(name string) string { return filepath.Join(b.Dir, name) }

// build makes a version, for which the trigger starts a job.
func (b *Bed) build(t testing.TB, n int) {
	t.Helper()
	b.version, b.died = n, 0
	err := os.WriteFile(b.at("version~"), fmt.Appendf(nil, "v%d\n", n), 0o600)
	if err = errors.Join(err, os.Rename(b.at("version~"), b.at("version"))); err != nil {
		t.Fatal(err)
	}
}

// job returns the id of the last version's job.
func (b *Bed) job() string {
	return fmt.Sprintf("trigger-builds-%.12x", sha256.Sum256(fmt.Appendf(nil, "v%d", b.version)))
}

// start starts the service.
func (b *Bed) start(t testing.TB) {
	t.Helper()
	b.cmd = b.Command("bed", b.at("bed.yaml"))
	errs, err := b.cmd.StderrPipe()
	if err == nil {
		err = b.cmd.Start()
	}

	if err != nil {
		t.Fatal(err)
	}

	b.over = make(chan error, 1)
	ended := regexp.MustCompile(`job (trigger-builds-[0-9a-f]+): (?:done|failed|cancelled)$`)
	go func(cmd *exec.Cmd, over chan error) {
		for lines := bufio.NewScanner(io.TeeReader(errs, b.log)); lines.Scan(); {
			b.last = lines.Text()
			if m := ended.FindStringSubmatch(b.last); m != nil {
				b.ended <- m[1]
			}
		}
		over <- cmd.Wait()
	}(b.cmd, b.over)
	t.Cleanup(func() { b.cmd.Process.Kill() }) // no more than an error once it has ended
}

// end sends a signal and waits until the service has ended.
func (b *Bed) end(t testing.TB, s syscall.Signal) error {
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

// again starts the service again, as systemd does after the service has ended.
func (b *Bed) again(t testing.TB, err error) {
	t.Helper()
	t.Logf("the service has ended by itself: %v: %s", err, b.last)
	time.Sleep(time.Second)
	b.start(t)
}

// Kill kills n times, and checks that each version has one whole run, and that nothing is left.
func (b *Bed) Kill(t testing.TB, n int) {
	t.Helper()
	var err error
	if b.log, err = os.Create(b.at("bed.log")); err != nil {
		t.Fatal(err)
	}
	defer b.log.Close()
	b.ended = make(chan string, 1000)
	names := append([]string{"bed"}, slices.Sorted(maps.Keys(b.Faults))...)
	done := map[string]int{}
	b.build(t, 0)
	b.start(t)
	for i := range n {
		b.work(t, time.Duration(b.Random.Float64()*float64(b.Pause)), true)
		name := names[b.Random.IntN(len(names))]
		for name == "bed" && b.died == mayDie && len(names) > 1 {
			name = names[b.Random.IntN(len(names))]
		}

		done[name]++
		fmt.Fprintf(b.log, "kill %d of %d: %s\n", i+1, n, name)
		if name != "bed" {
			b.Faults[name]()
			continue
		}

		b.died++
		_ = b.end(t, syscall.SIGKILL) // the error says that it was killed
		b.start(t)
	}

	b.work(t, jobTime, false)
	if err := b.end(t, syscall.SIGTERM); err != nil {
		t.Errorf("SIGTERM: got %v, want exit code 0", err)
	}

	t.Logf("%d kills: %v", n, done)
	b.check(t)
	if t.Failed() {
		text, _ := os.ReadFile(b.log.Name())
		t.Logf("%s", text)
	}
}

// work lets the service work for some time. If a job has ended, it makes the next version, or returns.
func (b *Bed) work(t testing.TB, d time.Duration, next bool) {
	t.Helper()
	for late := time.After(d); ; {
		select {
		case id := <-b.ended:
			if id != b.job() {
				continue // it was killed before the end was recorded
			}

			if !next {
				return
			}

			b.build(t, b.version+1)
		case err := <-b.over:
			b.again(t, err)
		case <-late:
			if !next {
				t.Fatalf("job %s does not end", b.job())
			}
			return
		}
	}
}

func (b *Bed) check(t testing.TB) {
	t.Helper()
	stores := [][]string{nil}
	if b.Team != "" {
		stores = append(stores, []string{"--store", b.Team})
	}

	for _, store := range stores {
		b.checkRuns(t, store)
	}

	if text := b.run(t, "lab", "restore"); !strings.Contains(text, "nothing to restore") {
		t.Errorf("left behind: %s", text)
	}
}

// checkRuns checks that a store has one whole run of each version, and no job that failed.
func (b *Bed) checkRuns(t testing.TB, store []string) {
	t.Helper()
	versions := map[string]int{}
	trials := 0
	for line := range strings.Lines(b.run(t, append([]string{"list", "--json"}, store...)...)) {
		var h struct {
			ID, Status string
			Notes      []string
		}
		if err := json.Unmarshal([]byte(line), &h); err != nil || h.Status != "done" || len(h.Notes) != 2 {
			t.Errorf("run %+v, %v: want that it is done and names its job", h, err)
			continue
		}

		var d struct{ Trials []struct{ ID string } }
		text := b.run(t, append([]string{"show", "--json", h.ID}, store...)...)
		if err := json.Unmarshal([]byte(text), &d); err != nil {
			t.Error(err)
		}

		rows := map[string]bool{}
		for _, trial := range d.Trials {
			row, _, _ := strings.Cut(trial.ID, ".")
			rows[row] = true
		}

		if len(rows) != b.Trials || len(d.Trials) != b.Trials {
			t.Errorf("run %s, %s: %d trials of %d rows, want %d", h.ID, h.Notes[1], len(d.Trials), len(rows),
				b.Trials)
		}

		versions[h.Notes[1]]++
		trials += len(d.Trials)
	}

	for n := range b.version + 1 {
		if name := fmt.Sprintf("command v%d", n); versions[name] != 1 {
			t.Errorf("%q: %d runs, want one", name, versions[name])
		}
	}

	t.Logf("%d versions, %d runs, %d trials", b.version+1, len(versions), trials)
}

// run runs a command of chokepoint, which must succeed.
func (b *Bed) run(t testing.TB, args ...string) string {
	t.Helper()
	cmd := b.Command(args...)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("chokepoint %s: got %v, want success: %s", strings.Join(args, " "), err, errs.String())
	}
	return string(out)
}
