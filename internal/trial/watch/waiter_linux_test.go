package watch

import (
	"math"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/steady"
)

func aWaiter(t testing.TB) *waiter {
	t.Helper()
	w, err := newWaiter()
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { w.Close() })
	return w
}

func TestASleepEndsAtItsTime(t *testing.T) {
	w := aWaiter(t)
	steady.Run(t, func(t *steady.Trial) {
		for _, ns := range []int64{-1e6, 0, 1e5, 1e6, 15e6, 30e6} {
			at := host.Monotonic() + ns
			w.until(at)
			late := host.Monotonic() - at
			if late < 0 {
				t.Fatalf("a sleep of %d ns: ended %d ns early", ns, -late)
			} else if ns > 0 && late > 5e6 {
				t.Timedf("a sleep of %d ns: ended %d ns late", ns, late)
			}
		}
	})
}

// No wake is lost, whether it comes before the sleep, at its beginning or in it.
func TestAWakeEndsASleepWithoutEnd(t *testing.T) {
	w := aWaiter(t)
	for i := range 2000 {
		var waking sync.WaitGroup
		waking.Go(func() {
			for range i % 200 {
				host.Monotonic()
			}

			if i%100 == 0 {
				time.Sleep(time.Millisecond)
			}

			w.wake()
		})
		w.until(math.MaxInt64)
		waking.Wait()
	}
}

// A sleeper that holds a processor of Go's scheduler is preempted every 10 ms, at the price of several
// switches of threads, and holds up whoever has no other. One that waits for the poller holds none.
func TestASleeperHoldsNoProcessor(t *testing.T) {
	w := aWaiter(t)
	var sleeping sync.WaitGroup
	sleeping.Go(func() { w.until(math.MaxInt64) })
	state := ""
	for end := time.Now().Add(10 * time.Second); state != "IO wait" && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
		state = stateOf("(*waiter).until")
	}

	w.wake()
	sleeping.Wait()
	if state != "IO wait" {
		t.Errorf("a sleeper is in the state %q, want IO wait, in which it holds no processor", state)
	}
}

// stateOf is that of the goroutine in whose stack a function stands, as the runtime says it.
func stateOf(function string) string {
	stacks := make([]byte, 1<<20)
	for _, stack := range strings.Split(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
		if strings.Contains(stack, function) {
			_, state, _ := strings.Cut(stack, "[")
			state, _, _ = strings.Cut(state, "]")
			state, _, _ = strings.Cut(state, ",") // "IO wait, 2 minutes"
			return state
		}
	}
	return ""
}

func TestASleepDoesNotAllocate(t *testing.T) {
	w := aWaiter(t)
	got := testing.AllocsPerRun(100, func() { w.until(host.Monotonic() + 1e5) })
	if got != 0 {
		t.Errorf("got %v allocations per sleep, want 0", got)
	}
}

// What falling asleep and waking up costs is booked, and what else runs on the thread is not.
func TestTheCostOfASleepIsBooked(t *testing.T) {
	defer lockThread()()
	var a asleep
	start := a.begin()
	for threadTime() < start+2e6 {
	}

	if cost, now := a.over(); cost != maxWaking || now < start+2e6 {
		t.Errorf("a sleep in which something else ran: got %d ns, want %d", cost, int64(maxWaking))
	}

	a.begin()
	a.thread = -1
	if cost, _ := a.over(); cost != maxWaking {
		t.Errorf("on another thread: got %d ns, want those of the sleep before", cost)
	}

	a.begin()
	if cost, _ := a.over(); cost < 0 || cost >= maxWaking {
		t.Errorf("no sleep: got %d ns, want next to none", cost)
	}
}

func BenchmarkSleep(b *testing.B) {
	w := aWaiter(b)
	b.ReportAllocs()
	for b.Loop() {
		w.until(host.Monotonic() + 1e4)
	}
}
