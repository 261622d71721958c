package host

import (
	"os"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// resetLimits sets the normal scheduling class for all threads, and raises soft resource limits to the hard
// limits as far as permitted. It sets the limit for core dumps to 1, because our memory contains keys. With a
// limit of 0, the kernel would still pass a dump to a program if core_pattern is a pipe (core(5)).
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

	for usualClass() { // repeat, because a thread created meanwhile inherits the class of its creator
	}
}

// usualClass sets SCHED_OTHER for all threads of this process. It reports whether it changed the class of any
// thread.
func usualClass() (changed bool) {
	const other = 0 // the value of SCHED_OTHER
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
