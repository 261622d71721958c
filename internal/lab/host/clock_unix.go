//go:build unix

package host

import "golang.org/x/sys/unix"

// Monotonic reads CLOCK_MONOTONIC in nanoseconds: the clock of every time in
// a trial. Processes of one machine share it, also across namespaces.
func Monotonic() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic("clock_gettime(CLOCK_MONOTONIC): " + err.Error()) // cannot happen on a POSIX system
	}
	return t.Nano()
}
