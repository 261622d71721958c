package traffic

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// sleepUntil blocks the calling thread until CLOCK_MONOTONIC reaches at or a signal arrives. It does not
// use Go's timers, because their resolution is only a millisecond. Write explains why the call is raw.
func sleepUntil(at int64) {
	ts := unix.NsecToTimespec(at)
	unix.RawSyscall6(unix.SYS_CLOCK_NANOSLEEP, unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME,
		uintptr(unsafe.Pointer(&ts)), 0, 0, 0)
}

// Nap sleeps for d, or until a signal arrives.
func Nap(d time.Duration) {
	ts := unix.NsecToTimespec(int64(d))
	unix.RawSyscall6(unix.SYS_CLOCK_NANOSLEEP, unix.CLOCK_MONOTONIC, 0, uintptr(unsafe.Pointer(&ts)), 0, 0, 0)
}

// Write calls write(2) as a raw system call. All calls of threads that carry a load are raw, which bypasses
// Go's scheduler. With normal calls, the scheduler would preempt a thread at each call once it had done
// nothing but system calls for 10 ms (retake in runtime/proc.go, Go 1.26). This cost a fifth of a core, and
// the context switches lost packets. A raw call must return by itself or by a signal within tens of
// milliseconds, because garbage collection waits for it.
func Write(fd int, b []byte) (int, error) {
	return Returned(unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(&b[0])),
		uintptr(len(b))))
}

// Receive calls recv(2) as a raw system call.
func Receive(fd int, b []byte, flags int) (int, error) {
	return Returned(unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(&b[0])),
		uintptr(len(b)), uintptr(flags), 0, 0))
}

// Returned converts the result of a raw system call that returns a count to a Go result.
func Returned(n, _ uintptr, errno unix.Errno) (int, error) {
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// CallTimeout limits the duration of each system call of a thread that carries a load.
const CallTimeout = 20 * time.Millisecond

// Bound sets the socket's timeouts, so that calls return within CallTimeout or when a signal arrives.
func Bound(fd int) error {
	tv := unix.NsecToTimeval(int64(CallTimeout))
	return errors.Join(unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &tv),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv))
}

// Watch opens an epoll instance for sockets. Events contain the index of the socket in fds.
func Watch(fds []int, events uint32) (poll int, err error) {
	if poll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return -1, fmt.Errorf("open an epoll: %w", err)
	}

	for i, fd := range fds {
		e := unix.EpollEvent{Events: events, Fd: int32(i)}
		if err := unix.EpollCtl(poll, unix.EPOLL_CTL_ADD, fd, &e); err != nil {
			unix.Close(poll)
			return -1, fmt.Errorf("watch socket %d of %d: %w", i+1, len(fds), err)
		}
	}
	return poll, nil
}

// EpollWait calls epoll_wait(2) as a raw system call. wait must not exceed CallTimeout.
func EpollWait(poll int, events []unix.EpollEvent, wait time.Duration) (int, error) {
	return Returned(unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(poll), uintptr(unsafe.Pointer(&events[0])),
		uintptr(len(events)), uintptr(wait.Milliseconds()), 0, 0))
}

// reportsThreads is true, because the CPU time of each thread can be read.
const reportsThreads = true

// OwnThread locks the calling goroutine to a thread that ends with it, and gives the thread precise
// timers. It returns the thread's id.
func OwnThread() int {
	runtime.LockOSThread()
	unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	return unix.Gettid()
}

// threadCPU returns the CPU time of a thread of this process, in ns, from the thread's CPU clock (see
// pthread_getcpuclockid(3)), or 0 on error.
func threadCPU(tid int) int64 {
	var ts unix.Timespec
	unix.ClockGettime(int32(^tid)<<3|6, &ts)
	return ts.Nano()
}

// peakMemory returns the peak resident set size of this process in bytes, or 0 if it is unavailable.
func peakMemory() int64 {
	b, _ := os.ReadFile("/proc/self/status")
	_, rest, _ := strings.Cut(string(b), "\nVmHWM:")
	f := strings.Fields(rest)
	if len(f) > 1 && f[1] == "kB" {
		n, _ := strconv.ParseInt(f[0], 10, 64)
		return n << 10
	}

	return 0
}

// PinProcess restricts all current and future threads of this process to these cores.
func PinProcess(cpus []int) error {
	if len(cpus) == 0 {
		return nil
	}

	var set unix.CPUSet
	for _, c := range cpus {
		set.Set(c)
	}

	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return fmt.Errorf("pin the engine to cores %v: %w", cpus, err)
	}

	for _, t := range tasks {
		tid, err := strconv.Atoi(t.Name())
		if err != nil {
			continue
		}

		if err := unix.SchedSetaffinity(tid, &set); err != nil && err != unix.ESRCH {
			return fmt.Errorf("pin the engine to cores %v: %w", cpus, err)
		}
	}

	return nil
}

// AllowedCPUs lists the cores that the process may run on, or none on error.
func AllowedCPUs() []int {
	var set unix.CPUSet
	unix.SchedGetaffinity(0, &set)
	var cpus []int
	for i := 0; len(cpus) < set.Count(); i++ {
		if set.IsSet(i) {
			cpus = append(cpus, i)
		}
	}

	return cpus
}

// MakeRoom raises GOMAXPROCS for n threads that make raw system calls, because such a thread keeps its P
// during a call. It counts each thread twice, because both ends of a load may run in one process.
func MakeRoom(n int) {
	if n = 2*n + runtime.NumCPU(); runtime.GOMAXPROCS(0) < n {
		runtime.GOMAXPROCS(n)
	}
}

const lowestRealtime = 1 // priority of SCHED_FIFO

// Raise requests the lowest realtime priority for the calling thread, which must sleep most of the time.
// It returns the scheduling class that the thread then has.
func Raise() string {
	a := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: lowestRealtime}
	if err := unix.SchedSetAttr(0, &a, 0); err != nil {
		return "normal"
	}
	return fmt.Sprintf("fifo %d", lowestRealtime)
}
