// Package steady supports tests that depend on time. On a machine whose hypervisor shares its CPUs, a vCPU
// may stall for tens of milliseconds at any moment, so that a measured time or rate proves nothing about
// the code. A wrong time or rate therefore fails the test only if no vCPU stalled and if further trials
// confirm it. All other errors fail the test at once.
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
	// repeats is the number of trials without a stalled CPU in which a time must be wrong before the test
	// fails. A bug affects every trial; delays by other processes on a busy machine do not repeat. With
	// CHOKEPOINT_LONG, one trial suffices.
	repeats = 3
	// stallTime is the shortest delay in waking a sleeping thread that counts as a stall of its CPU. The
	// kernel's scheduler wakes a thread within a few milliseconds, even if many other threads are runnable.
	stallTime = 15 * time.Millisecond
	// pause is the time between trials, in which a disturbance of the machine may pass.
	pause = 300 * time.Millisecond
	nap   = 2 * time.Millisecond
)

// Trial is one attempt of a test. Errors that the test reports by other methods than Timedf fail the test
// at once.
type Trial struct {
	testing.TB

	mu       sync.Mutex
	said     []string
	stalled  time.Duration
	cleanups []func()
}

// Timedf reports a wrong time or rate, or the consequence of one. The test fails if Timedf was called in
// three trials without a CPU stall of 15 ms or more.
func (r *Trial) Timedf(format string, args ...any) {
	_, file, line, _ := runtime.Caller(1)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.said = append(r.said, fmt.Sprintf("%s:%d: ", filepath.Base(file), line)+fmt.Sprintf(format, args...))
}

// Stalled records that the test itself noticed a CPU stall of duration d, for example by missed ticks of
// its clock.
func (r *Trial) Stalled(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stalled = max(r.stalled, d)
}

// Found returns the messages passed to Timedf.
func (r *Trial) Found() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.said)
}

// Cleanup runs f at the end of this trial.
func (r *Trial) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }

// Run runs body, and repeats it until the calls to Timedf are conclusive. After six inconclusive trials it
// skips the test, because nothing that depends on time can be tested on this machine. body must not start
// subtests.
func Run(t testing.TB, body func(t *Trial)) {
	t.Helper()
	needed := repeats
	if os.Getenv("CHOKEPOINT_LONG") != "" {
		needed = 1
	}

	run(t, watchCPUs, needed, body)
}

// run repeats body until body does not call Timedf. It fails t after the given number (needed) of trials that
// call Timedf without a CPU stall. Tests of this package pass their own watch.
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

// do runs body once and returns the longest stall of a CPU.
func (r *Trial) do(watch func() func() time.Duration, body func(*Trial)) (stalled time.Duration) {
	stop := watch()
	defer func() { // runs even if body calls Fatal
		stalled = max(stop(), r.stalled)
		for _, f := range slices.Backward(r.cleanups) {
			f()
		}
	}()
	body(r)
	return 0
}

// watchCPUs runs a thread on each CPU that repeatedly sleeps and wakes. stop returns the maximum delay in
// waking.
func watchCPUs() (stop func() time.Duration) {
	done := make(chan struct{})
	var threads, ready sync.WaitGroup
	cpus := allowed()
	late := make([]time.Duration, len(cpus))
	ready.Add(len(cpus))
	for i, p := range cpus {
		threads.Go(func() {
			runtime.LockOSThread() // never unlocked: the thread and its affinity end with the goroutine
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
