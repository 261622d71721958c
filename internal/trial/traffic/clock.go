package traffic

import (
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// Monotonic returns CLOCK_MONOTONIC in nanoseconds.
func Monotonic() int64 { return host.Monotonic() }

// glance is the maximum time until a sleeping thread notices that it should stop.
const glance = 20 * time.Millisecond

// SleepUntil sleeps until CLOCK_MONOTONIC reaches at, or stop is set.
func SleepUntil(at int64, stop *atomic.Bool) {
	for !stop.Load() {
		now := Monotonic()
		if now >= at {
			return
		}

		sleepUntil(min(at, now+int64(glance)))
	}
}

// processCPU returns the user and system time of this process, in ns, or 0 on error.
func processCPU() (user, system int64) {
	var u unix.Rusage
	unix.Getrusage(unix.RUSAGE_SELF, &u)
	return u.Utime.Nano(), u.Stime.Nano()
}

// Again reports whether a system call only timed out or was interrupted, so that it should be repeated.
func Again(err error) bool { return err == unix.EAGAIN || err == unix.EINTR }
