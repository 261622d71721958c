package steady

import (
	"time"

	"golang.org/x/sys/unix"
)

// allowed returns the CPUs that this thread may run on.
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

// pin restricts this thread to one CPU.
func pin(CPU int) {
	var set unix.CPUSet
	set.Set(CPU)
	_ = unix.SchedSetaffinity(0, &set) // if this fails, the thread detects stalls of another CPU
}

// sleep blocks the thread itself. time.Sleep would not do, because Go's timers depend on other threads.
func sleep(d time.Duration) {
	ts := unix.NsecToTimespec(int64(d))
	_ = unix.Nanosleep(&ts, nil)
}
