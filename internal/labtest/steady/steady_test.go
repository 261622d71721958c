package steady

import (
	"fmt"
	"os/exec"
	"regexp"
	"runtime"
	"testing"
	"time"
)

// listener is a test that keeps what it is told.
type listener struct {
	testing.TB
	errors, logs []string
	skipped      bool
}

func (l *listener) Helper()           {}
func (l *listener) Failed() bool      { return len(l.errors) > 0 }
func (l *listener) Log(args ...any)   { l.logs = append(l.logs, fmt.Sprint(args...)) }
func (l *listener) Error(args ...any) { l.errors = append(l.errors, fmt.Sprint(args...)) }
func (l *listener) Skip(...any)       { l.skipped = true }
func (l *listener) Fatal(args ...any) {
	l.Error(args...)
	runtime.Goexit()
}

func watched(still ...time.Duration) func() func() time.Duration {
	n := -1
	return func() func() time.Duration {
		n++
		return func() time.Duration { return still[min(n, len(still)-1)] }
	}
}

func TestTimesOfASteadyMachineCount(t *testing.T) {
	var l listener
	times := 0
	run(&l, watched(stallTime-1), 1, func(t *Trial) {
		times++
		t.Timedf("took %d", 7)
		t.Timedf("came to %d", 8)
	})
	wants := regexp.MustCompile(`\nsteady_test.go:\d+: took 7\nsteady_test.go:\d+: came to 8$`)
	if times != 1 || len(l.errors) != 1 || !wants.MatchString(l.errors[0]) {
		t.Errorf("ran %d times, said %q; want once, both complaints with their lines", times, l.errors)
	}
}

func TestTimesOfAStalledMachineAreTakenAgain(t *testing.T) {
	for _, tt := range []struct {
		name          string
		late          int // trials that take too long, the first ones
		still         []time.Duration
		needed        int // late trials without an excuse that make an error
		times, errors int
	}{
		{"in time", 0, []time.Duration{time.Second}, 1, 1, 0},
		{"in time at last", 2, []time.Duration{time.Second}, 1, 3, 0},
		{"late without an excuse", 9, []time.Duration{time.Second, stallTime, 0}, 1, 3, 1},
		{"late twice without an excuse", 2, []time.Duration{0}, 3, 3, 0},
		{"late three times without an excuse", 9, []time.Duration{0, stallTime, 0, 0}, 3, 4, 1},
		{"late for ever", 9, []time.Duration{time.Second}, 1, trials, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var l listener
			times, cleaned := 0, 0
			run(&l, watched(tt.still...), tt.needed, func(t *Trial) {
				times++
				t.Cleanup(func() { cleaned++ })
				if times <= tt.late {
					t.Timedf("late")
				}
			})
			if times != tt.times || cleaned != times || len(l.errors) != tt.errors ||
				l.skipped != (times == trials) {
				t.Errorf("ran %d times and cleaned up %d, %d errors, skipped %v; want %d times, %d errors, "+
					"and skipped if it is late for ever",
					times, cleaned, len(l.errors), l.skipped, tt.times, tt.errors)
			}

			spoilt := min(tt.late, times) - len(l.errors)
			if len(l.logs) != spoilt {
				t.Errorf("said %q, want what was wrong with the %d trials that do not count", l.logs, spoilt)
			}
		})
	}
}

// TestATrialMaySeeTheStillnessItself: the longest counts, whoever saw it.
func TestATrialMaySeeTheStillnessItself(t *testing.T) {
	for _, tt := range []struct {
		seen   []time.Duration
		watch  time.Duration
		errors int
	}{
		{[]time.Duration{stallTime - 1}, 0, 1},
		{[]time.Duration{stallTime}, 0, 0},
		{[]time.Duration{stallTime, 0}, 0, 0},
		{[]time.Duration{0}, stallTime, 0},
	} {
		var l listener
		run(&l, watched(tt.watch), 1, func(t *Trial) {
			t.Timedf("late")
			for _, d := range tt.seen {
				t.Stalled(d)
			}
		})
		if len(l.errors) != tt.errors || l.skipped == (tt.errors > 0) {
			t.Errorf("trials saw %v, the watch %v: %d errors, skipped %v; want %d errors, or skipped "+
				"without one",
				tt.seen, tt.watch, len(l.errors), l.skipped, tt.errors)
		}
	}
}

// TestOtherFaultsCountAtOnce: however still the machine stood. A trial that ends by Fatal cleans up and
// leaves nobody watching.
func TestOtherFaultsCountAtOnce(t *testing.T) {
	for _, fatal := range []bool{false, true} {
		var l listener
		times := 0
		stopped := 0
		cleaned := 0
		body := func(t *Trial) {
			times++
			t.Cleanup(func() { cleaned++ })
			t.Timedf("late")
			if fatal {
				t.Fatal("wrong")
			}

			t.Error("wrong")
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			run(&l,
				func() func() time.Duration { return func() time.Duration { stopped++; return time.Second } },
				1, body)
		}()
		<-ended
		if times != 1 || stopped != 1 || cleaned != 1 || len(l.errors) == 0 || l.errors[0] != "wrong" {
			t.Errorf("fatal %v: ran %d times, %d watches ended, cleaned up %d times, said %q; want once "+
				"each, and what is wrong",
				fatal, times, stopped, cleaned, l.errors)
		}
	}
}

// TestSeesAMachineStandStill: another process stops this one for a while.
func TestSeesAMachineStandStill(t *testing.T) {
	const held = 200 * time.Millisecond
	stop := watchCPUs()
	if out, err := exec.Command("sh", "-c",
		"kill -STOP $PPID; sleep .2; kill -CONT $PPID").CombinedOutput(); err != nil {
		t.Fatalf("hold this process up: %v: %s", err, out)
	}

	still := stop()
	if still < held-10*time.Millisecond {
		t.Errorf("saw the CPUs stalled for %v, want %v", still, held)
	}
}
