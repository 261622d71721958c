//go:build unix

package host

import (
	"time"

	"golang.org/x/sys/unix"
)

// Monotonic reads CLOCK_MONOTONIC in nanoseconds, the clock for every time in a trial. Processes of one
// machine share it, even across namespaces.
func Monotonic() int64 { return origin.at + int64(time.Since(origin.read)) }

// origin relates Go's monotonic clock, which is CLOCK_MONOTONIC with another zero and needs no system call,
// to CLOCK_MONOTONIC.
var origin = tie()

type tied struct {
	read time.Time
	at   int64 // CLOCK_MONOTONIC at the time read
}

// tie keeps the reading with the shortest interruption.
func tie() (best tied) {
	least := int64(1) << 62
	for range 8 {
		before := kernelMonotonic()
		read := time.Now()
		after := kernelMonotonic()
		if after-before < least {
			least = after - before
			best = tied{read: read, at: before + (after-before)/2}
		}
	}
	return best
}

func kernelMonotonic() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic("clock_gettime(CLOCK_MONOTONIC): " + err.Error()) // cannot happen on a POSIX system
	}
	return t.Nano()
}
