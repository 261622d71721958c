//go:build !linux

package traffic

import (
	"context"
	"fmt"
	"runtime"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// Serve answers that the probe's node half needs Linux.
func (Echo) Serve(context.Context, host.Session) error {
	return fmt.Errorf("latency probe on %s: %w", runtime.GOOS, host.ErrUnsupported)
}

// Serve answers that the probe's node half needs Linux.
func (ICMP) Serve(context.Context, host.Session) error {
	return fmt.Errorf("latency probe on %s: %w", runtime.GOOS, host.ErrUnsupported)
}
