//go:build !linux

package traffic

import (
	"fmt"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// sleepUntil sleeps until CLOCK_MONOTONIC reaches at.
func sleepUntil(at int64) { time.Sleep(time.Duration(at - Monotonic())) }

// reportsThreads: the use of each thread is unknown, as goroutines have no threads of their own.
const reportsThreads = false

// OwnThread leaves the calling goroutine on its present thread.
func OwnThread() int { return 0 }

func threadCPU(int) int64 { return 0 }

// peakMemory is unknown: getrusage(2) reports it in another unit on each system.
func peakMemory() int64 { return 0 }

// PinProcess fails: this system cannot limit a process to cores.
func PinProcess(cpus []int) error {
	if len(cpus) == 0 {
		return nil
	}
	return fmt.Errorf("pin the engine to cores %v: %w", cpus, host.ErrUnsupported)
}

// AllowedCPUs returns nil: unknown.
func AllowedCPUs() []int { return nil }

// MakeRoom does nothing: waiting calls go through Go's scheduler.
func MakeRoom(int) {}

// Raise leaves the calling thread in its scheduling class.
func Raise() string { return "normal" }
