//go:build !linux

package traffic

import (
	"context"
	"fmt"
	"runtime"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// Serve answers that the engine's node half needs Linux.
func (XDP) Serve(context.Context, host.Session) error {
	return fmt.Errorf("xdp engine on %s: %w", runtime.GOOS, host.ErrUnsupported)
}
