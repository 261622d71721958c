// Package steady is for tests that depend on time. On a machine whose hypervisor lends its CPUs to others a
// vCPU stalls for tens of milliseconds, in the middle of whatever is timed, and then a time or a rate reveals
// nothing about the code. So a test's finding about a time or a rate counts only if no vCPU stalled meanwhile
// and if further trials confirm it; all other findings count at once.
package steady

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	trials = 6
	// repeats is the number of trials without a stalled CPU in which a time must be wrong. With a bug it is
	// wrong in each; delays by other processes of a busy machine do not repeat. With CHOKEPOINT_LONG, one
	// trial suffices.
	repeats = 3
	// stallTime is how late a CPU must wake a sleeping thread to count as stalled. The kernel's scheduler
	// wakes it within a few milliseconds, however many others want to run.
	stallTime = 15 * time.Millisecond
	// pause waits for a disturbance of the machine to pass.
	pause = 300 * time.Millisecond
	nap   = 2 * time.Millisecond
)

// Trial is one attempt of a test. Its other methods report errors that count whatever happens on the machine.
type Trial struct {
	testing.TB

	mu       sync.Mutex
	said     []string
	stalled  time.Duration
	cleanups []func()
}

// Timedf reports a wrong time or rate, or its consequence. It counts only if no CPU stalled for 15 ms or more
// during the trial, and if that happens in three trials.
func (r *Trial) Timedf(format string, args ...any) {
	_, file, line, _ := runtime.Caller(1)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.said = append(r.said, fmt.Sprintf("%s:%d: ", filepath.Base(file), line)+fmt.Sprintf(format, args...))
}

// Stalled reports that the trial itself noticed that a CPU stalled for d, such as one that misses ticks of
// its clock, even if only for a few at a time.
func (r *Trial) Stalled(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stalled = max(r.stalled, d)
}

// Found returns what Timedf has reported.
func (r *Trial) Found() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.said)
}

// Cleanup runs f at the end of this trial.
func (r *Trial) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }

// Run runs body, and repeats it if Timedf was called and does not count yet. It skips the test if a CPU
// stalled in most of six trials: such a machine cannot test anything that takes time. Body must not start
// subtests.
func Run(t testing.TB, body func(t *Trial)) {
	t.Helper()
	needed := repeats
	if os.Getenv("CHOKEPOINT_LONG") != "" {
		needed = 1
	}

	run(t, watchCPUs, needed, body)
}

// run fails t when Timedf was called in needed trials without a stalled CPU. Tests pass a watch of their own,
// to set what it saw.
func run(t testing.TB, watch func() (stop func() time.Duration), needed int, body func(t *Trial)) {
	t.Helper()
	for n := 1; ; n++ {
		r := Trial{TB: t}
		stalled := r.do(watch, body)
		if len(r.said) == 0 {
			return
		}

		found := fmt.Sprintf("trial %d, a vCPU was stalled for %v at most:\n%s", n,
			stalled.Round(time.Millisecond), strings.Join(r.said, "\n"))
		if stalled < stallTime {
			needed--
		}

		if needed == 0 || t.Failed() {
			t.Error(found)
			return
		}

		t.Log(found)
		if n == trials {
			t.Skip("skip: a vCPU was stalled too often in", n, "trials")
			return
		}

		time.Sleep(pause)
	}
}

// do returns the longest stall of a CPU.
func (r *Trial) do(watch func() func() time.Duration, body func(*Trial)) (stalled time.Duration) {
	stop := watch()
	defer func() { // even if body has left by Fatal
		stalled = max(stop(), r.stalled)
		for _, f := range slices.Backward(r.cleanups) {
			f()
		}
	}()
	body(r)
	return 0
}

// watchCPUs keeps a thread on each CPU that continually sleeps and wakes up; stop returns the maximum
// lateness.
func watchCPUs() (stop func() time.Duration) {
	done := make(chan struct{})
	var threads, ready sync.WaitGroup
	cpus := allowed()
	late := make([]time.Duration, len(cpus))
	ready.Add(len(cpus))
	for i, p := range cpus {
		threads.Go(func() {
			runtime.LockOSThread() // and never unlocked, so that the thread ends with its affinity
			pin(p)
			before := time.Now()
			ready.Done()
			for {
				select {
				case <-done:
					return
				default:
				}

				sleep(nap)
				now := time.Now()
				late[i] = max(late[i], now.Sub(before)-nap)
				before = now
			}
		})
	}

	ready.Wait()
	return func() time.Duration {
		close(done)
		threads.Wait()
		if len(late) == 0 {
			return 0
		}

		return slices.Max(late)
	}
}
