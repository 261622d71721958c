package watch

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// waiter sleeps a thread until a time or until it is woken.
type waiter struct {
	event int // eventfd
	poll  [1]unix.PollFd
}

func newWaiter() (*waiter, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("make eventfd: %w", err)
	}
	return &waiter{event: fd}, nil
}

// longestSleep keeps the length of a sleep within 32 bits of seconds.
const longestSleep = 3600e9

// until sleeps until the monotonic clock reads at, or returns early when woken. A signal, such as the
// runtime's own, does not end the sleep.
func (w *waiter) until(at int64) {
	for {
		left := at - host.Monotonic()
		if left <= 0 {
			return
		}
		t := unix.NsecToTimespec(min(left, longestSleep))
		w.poll[0] = unix.PollFd{Fd: int32(w.event), Events: unix.POLLIN}
		if n, err := w.ppoll(&t, left <= shortSleep); err == nil && n > 0 {
			var b [8]byte
			unix.Read(w.event, b[:])
			return
		}
	}
}

// shortSleep is up to when a sleep is a raw call. In a longer one Go's monitor may better go to sleep, too:
// looking after a thread that it thinks is busy costs it a hundred wake-ups per second.
const shortSleep = 20e6

func (w *waiter) ppoll(t *unix.Timespec, raw bool) (int, error) {
	if !raw {
		return unix.Ppoll(w.poll[:], t, nil)
	}
	n, _, errno := unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&w.poll)), 1,
		uintptr(unsafe.Pointer(t)), 0, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// wake ends a sleep, or the next one. Any goroutine may call it.
func (w *waiter) wake() {
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], 1)
	unix.Write(w.event, b[:])
}

func (w *waiter) Close() error { return unix.Close(w.event) }

// makeRoom gives the sampler a processor of Go's scheduler, since its short sleeps hold on to it.
func makeRoom() {
	if n := runtime.NumCPU() + 1; runtime.GOMAXPROCS(0) < n {
		runtime.GOMAXPROCS(n)
	}
}

// lockThread keeps the calling goroutine on its own thread until release, so that sleeps are exact and
// threadTime is the sampler's own.
func lockThread() (release func()) {
	runtime.LockOSThread()
	return runtime.UnlockOSThread
}

// threadTime is the CPU time of the calling thread, in nanoseconds.
func threadTime() int64 {
	var t unix.Timespec
	if _, _, errno := unix.RawSyscall(unix.SYS_CLOCK_GETTIME, unix.CLOCK_THREAD_CPUTIME_ID,
		uintptr(unsafe.Pointer(&t)), 0); errno != 0 {
		return 0
	}
	return t.Nano()
}
