package steady

import (
	"time"

	"golang.org/x/sys/unix"
)

// allowed returns the CPUs on which this thread may run.
func allowed() []int {
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) != nil {
		return nil
	}

	var out []int
	for i := 0; len(out) < set.Count(); i++ {
		if set.IsSet(i) {
			out = append(out, i)
		}
	}

	return out
}

// pin restricts this thread to a CPU.
func pin(CPU int) {
	var set unix.CPUSet
	set.Set(CPU)
	_ = unix.SchedSetaffinity(0, &set) // on another CPU it detects that CPU's stalls
}

// sleep blocks the thread itself: Go's own timers wait for other threads.
func sleep(d time.Duration) {
	ts := unix.NsecToTimespec(int64(d))
	_ = unix.Nanosleep(&ts, nil)
}
