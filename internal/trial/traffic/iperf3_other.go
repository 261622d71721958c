//go:build !linux

package traffic

import (
	"context"
	"fmt"
	"runtime"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// Serve answers that the adapter's node half needs Linux.
func (Iperf3) Serve(context.Context, host.Session) error {
	return fmt.Errorf("iperf3 adapter on %s: %w", runtime.GOOS, host.ErrUnsupported)
}
