package host

import (
	"os"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// resetLimits gives all threads the usual scheduling class, and lifts the soft limits that a caller may have
// set. What is not permitted stays. Our memory, which holds keys, is neither dumped to disk nor passed to a
// program: if core_pattern is a pipe, the kernel ignores a limit of 0 but respects 1 (core(5)).
func resetLimits() {
	unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: 1, Max: 1})
	for _, limit := range []int{unix.RLIMIT_CPU, unix.RLIMIT_FSIZE, unix.RLIMIT_DATA, unix.RLIMIT_AS,
		unix.RLIMIT_NPROC, unix.RLIMIT_MEMLOCK, unix.RLIMIT_RTTIME} {
		var r unix.Rlimit
		if unix.Getrlimit(limit, &r) == nil && r.Cur != r.Max {
			r.Cur = r.Max
			unix.Setrlimit(limit, &r)
		}
	}

	for usualClass() { // a thread created meanwhile has the class of its creator
	}
}

// usualClass gives each thread the usual scheduling class, and reports whether one had another.
func usualClass() (changed bool) {
	const other = 0 // SCHED_OTHER
	threads, _ := os.ReadDir("/proc/self/task")
	for _, t := range threads {
		tid, _ := strconv.Atoi(t.Name())
		class, _, errno := unix.RawSyscall(unix.SYS_SCHED_GETSCHEDULER, uintptr(tid), 0, 0)
		if errno == 0 && class != other {
			var param struct{ priority int32 }
			_, _, errno := unix.RawSyscall(unix.SYS_SCHED_SETSCHEDULER, uintptr(tid), other,
				uintptr(unsafe.Pointer(&param)))
			changed = changed || errno == 0
		}
	}

	return changed
}
