//go:build unix

package host

import (
	"time"

	"golang.org/x/sys/unix"
)

// Monotonic returns CLOCK_MONOTONIC in ns. All times in a trial use this clock, because all processes of a
// machine share it, even across namespaces.
func Monotonic() int64 { return origin.at + int64(time.Since(origin.read)) }

// origin converts readings of Go's monotonic clock to CLOCK_MONOTONIC. The two clocks differ only by a
// constant, and reading Go's clock needs no system call.
var origin = tie()

type tied struct {
	read time.Time
	at   int64 // CLOCK_MONOTONIC when time.Now returned read
}

// tie reads both clocks several times and returns the pair that was read in the shortest time.
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
