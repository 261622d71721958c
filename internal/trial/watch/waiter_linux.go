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

// waiter sleeps until a given time or until it is woken. It uses a timerfd in the runtime's poller, so
// that the sleeping goroutine does not hold a P. A goroutine that holds a P is preempted every 10 ms with
// a signal and thread switches, which at 100 Hz took a quarter of the watch's CPU time.
type waiter struct {
	timer *os.File
	conn  syscall.RawConn
	fd    int
	at    int64 // end of the current sleep
	look  func(fd uintptr) (over bool)
	woken atomic.Bool
}

func newWaiter() (*waiter, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("make timerfd: %w", err)
	}

	w := &waiter{timer: os.NewFile(uintptr(fd), "timerfd"), fd: fd}
	w.look = w.over // created only once, because a method value is allocated on the heap
	if w.conn, err = w.timer.SyscallConn(); err != nil {
		w.timer.Close()
		return nil, fmt.Errorf("wait for timerfd: %w", err)
	}

	return w, nil
}

// longestSleep limits a sleep in ns, so that its seconds fit into 32 bits.
const longestSleep = 3600e9

// until sleeps until the monotonic clock reaches at, or until the waiter is woken.
func (w *waiter) until(at int64) {
	w.at = at
	w.conn.Read(w.look)
}

// over reports whether the sleep has ended. If it has not, over sets the timer again. The timer is never
// read, but the poller reports each expiry.
func (w *waiter) over(uintptr) bool {
	now := host.Monotonic()
	if now >= w.at || w.woken.Swap(false) {
		return true
	}

	w.set(min(w.at, now+longestSleep), unix.TFD_TIMER_ABSTIME)
	return w.woken.Swap(false) // use Swap, because a wake-up that arrived meanwhile would be lost otherwise
}

func (w *waiter) set(ns int64, flags int) {
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(max(ns, 1))} // 0 would disarm the timer
	unix.TimerfdSettime(w.fd, flags, &spec, nil)
}

// wake ends the current sleep or, if there is none, the next one. It is safe for concurrent use.
func (w *waiter) wake() {
	w.woken.Store(true)
	w.set(1, 0)
}

func (w *waiter) Close() error { return w.timer.Close() }

// makeRoom raises GOMAXPROCS, so that the sampler does not wait for other work of the process.
func makeRoom() {
	n := runtime.NumCPU() + 1
	if runtime.GOMAXPROCS(0) < n {
		runtime.GOMAXPROCS(n)
	}
}

// lockThread locks the calling goroutine to its thread until release is called, so that threadTime always
// refers to the same thread.
func lockThread() (release func()) {
	runtime.LockOSThread()
	return runtime.UnlockOSThread
}

// threadID returns the id of the calling thread.
func threadID() int {
	id, _, _ := unix.RawSyscall(unix.SYS_GETTID, 0, 0, 0)
	return int(id)
}

// threadTime returns the CPU time of the calling thread, in nanoseconds, or 0 on error.
func threadTime() int64 {
	var t unix.Timespec
	unix.RawSyscall(unix.SYS_CLOCK_GETTIME, unix.CLOCK_THREAD_CPUTIME_ID, uintptr(unsafe.Pointer(&t)), 0)
	return t.Nano()
}
