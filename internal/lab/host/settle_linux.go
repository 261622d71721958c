package host

import (
	"os"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// resetLimits gives all threads the usual scheduling class, and lifts the soft limits that a caller may have
// set. What is not allowed stays. No memory of ours, which holds keys, is written to disk
// or handed to a program: where core_pattern is a pipe a limit of 0 is not obeyed, and one of 1 is (core(5)).
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

	for usualClass() { // a thread that was made meanwhile has the class of the one that made it
	}
}

// usualClass gives each thread the usual scheduling class, and says whether one had another.
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
