//go:build !linux

package traffic

import (
	"fmt"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// sleepUntil sleeps until CLOCK_MONOTONIC reaches at.
func sleepUntil(at int64) { time.Sleep(time.Duration(at - Monotonic())) }

// reportsThreads is false, because goroutines do not have their own threads on this system.
const reportsThreads = false

// OwnThread does nothing on this system.
func OwnThread() int { return 0 }

func threadCPU(int) int64 { return 0 }

// peakMemory returns 0, because the unit of getrusage(2) differs between systems.
func peakMemory() int64 { return 0 }

// PinProcess returns an error, because this system cannot restrict a process to cores.
func PinProcess(cpus []int) error {
	if len(cpus) == 0 {
		return nil
	}
	return fmt.Errorf("pin the engine to cores %v: %w", cpus, host.ErrUnsupported)
}

// AllowedCPUs returns nil, because the cores are unknown on this system.
func AllowedCPUs() []int { return nil }

// MakeRoom does nothing, because blocking calls go through Go's scheduler on this system.
func MakeRoom(int) {}

// Raise does nothing on this system.
func Raise() string { return "normal" }
