package watch

import (
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// waiter sleeps until a time or until it is woken. It uses a kernel timer in the runtime's poller: so the
// sleeper holds no processor of Go's scheduler. A goroutine that holds one is asked to yield every 10 ms,
// which takes a signal and thread switches: at 100 Hz a quarter of the watch's cost.
type waiter struct {
	timer *os.File
	conn  syscall.RawConn
	fd    int
	at    int64 // the end of this sleep
	look  func(fd uintptr) (over bool)
	woken atomic.Bool
}

func newWaiter() (*waiter, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("make timerfd: %w", err)
	}

	w := &waiter{timer: os.NewFile(uintptr(fd), "timerfd"), fd: fd}
	w.look = w.over // made once, as each new one would be on the heap
	if w.conn, err = w.timer.SyscallConn(); err != nil {
		w.timer.Close()
		return nil, fmt.Errorf("wait for timerfd: %w", err)
	}

	return w, nil
}

// longestSleep keeps the length of a sleep within 32 bits of seconds.
const longestSleep = 3600e9

// until sleeps until the monotonic clock reads at, or returns early when woken.
func (w *waiter) until(at int64) {
	w.at = at
	w.conn.Read(w.look)
}

// over reports whether the sleep has ended, and otherwise sets the timer again: although the timer is never
// read, the poller reports its next expiry.
func (w *waiter) over(uintptr) bool {
	now := host.Monotonic()
	if now >= w.at || w.woken.Swap(false) {
		return true
	}

	w.set(min(w.at, now+longestSleep), unix.TFD_TIMER_ABSTIME)
	return w.woken.Swap(false) // it arrived meanwhile, and would be lost
}

func (w *waiter) set(ns int64, flags int) {
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(max(ns, 1))} // 0 would stop the timer
	unix.TimerfdSettime(w.fd, flags, &spec, nil)
}

// wake ends a sleep, or the next one. Any goroutine may call it.
func (w *waiter) wake() {
	w.woken.Store(true)
	w.set(1, 0)
}

func (w *waiter) Close() error { return w.timer.Close() }

// makeRoom gives the sampler a processor of Go's scheduler, so that the process's other work does not make it
// wait for one.
func makeRoom() {
	n := runtime.NumCPU() + 1
	if runtime.GOMAXPROCS(0) < n {
		runtime.GOMAXPROCS(n)
	}
}

// lockThread keeps the calling goroutine on its thread until release, so that threadTime covers one thread.
func lockThread() (release func()) {
	runtime.LockOSThread()
	return runtime.UnlockOSThread
}

// threadID identifies the thread.
func threadID() int {
	id, _, _ := unix.RawSyscall(unix.SYS_GETTID, 0, 0, 0)
	return int(id)
}

// threadTime returns the CPU time of the calling thread, in nanoseconds.
func threadTime() int64 {
	var t unix.Timespec
	_, _, errno := unix.RawSyscall(unix.SYS_CLOCK_GETTIME, unix.CLOCK_THREAD_CPUTIME_ID,
		uintptr(unsafe.Pointer(&t)), 0)
	if errno != 0 {
		return 0
	}

	return t.Nano()
}
