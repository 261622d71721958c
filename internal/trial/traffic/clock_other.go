//go:build !linux

package traffic

import (
	"fmt"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// sleepUntil sleeps until CLOCK_MONOTONIC reaches at.
func sleepUntil(at int64) { time.Sleep(time.Duration(at - Monotonic())) }

// tellsThreads says that what each thread did is not known: goroutines have none of their own.
const tellsThreads = false

// OwnThread leaves the calling goroutine on whatever thread it is.
func OwnThread() int { return 0 }

func threadCPU(int) int64 { return 0 }

// peakMemory is not known: getrusage(2) tells it in another unit on each system.
func peakMemory() int64 { return 0 }

// PinProcess can limit the process to no cores.
func PinProcess(cpus []int) error {
	if len(cpus) == 0 {
		return nil
	}
	return fmt.Errorf("pin the engine to cores %v: %w", cpus, host.ErrUnsupported)
}

// AllowedCPUs are not known.
func AllowedCPUs() []int { return nil }

// MakeRoom has nothing to do: calls that wait are made by way of Go's scheduler.
func MakeRoom(int) {}

// Raise leaves the calling thread in its scheduling class.
func Raise() string { return "normal" }
