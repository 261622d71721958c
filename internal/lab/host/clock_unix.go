//go:build unix

package host

import (
	"time"

	"golang.org/x/sys/unix"
)

// Monotonic reads CLOCK_MONOTONIC in nanoseconds: the clock of every time in a trial. Processes of one
// machine share it, also across namespaces.
func Monotonic() int64 { return origin.at + int64(time.Since(origin.read)) }

// origin ties Go's monotonic clock, which is CLOCK_MONOTONIC without its zero and needs no call of the
// kernel, to that zero.
var origin = tie()

type tied struct {
	read time.Time
	at   int64 // CLOCK_MONOTONIC when read was read
}

// tie takes the reading that was interrupted least.
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
