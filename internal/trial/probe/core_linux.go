package probe

import (
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"
)

// allowedCores are the cores that the calling thread may run on.
func allowedCores() ([]int, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("read affinity: %w", err)
	}
	var cores []int
	for c := range len(set) * 64 {
		if set.IsSet(c) {
			cores = append(cores, c)
		}
	}
	return slices.Clip(cores), nil
}

// onCore does something on one core; a core that has gone offline does nothing. The thread may run where it
// might before, afterwards.
func onCore(core int, do func()) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, only unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return fmt.Errorf("read affinity: %w", err)
	}
	only.Set(core)
	if err := unix.SchedSetaffinity(0, &only); errors.Is(err, unix.EINVAL) ||
		errors.Is(err, fs.ErrPermission) {
		return nil
	} else if err != nil {
		return fmt.Errorf("go to core %d: %w", core, err)
	}
	do()
	if err := unix.SchedSetaffinity(0, &before); err != nil {
		return fmt.Errorf("leave core %d: %w", core, err)
	}
	return nil
}
