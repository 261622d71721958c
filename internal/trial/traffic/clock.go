package traffic

import (
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// Monotonic is CLOCK_MONOTONIC in nanoseconds.
func Monotonic() int64 { return host.Monotonic() }

// glance is how long a sleeping thread may overlook that it should stop.
const glance = 20 * time.Millisecond
