//go:build !linux

package traffic

import (
	"context"
	"fmt"
	"runtime"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// Serve answers that the engine's node half needs Linux.
func (Native) Serve(context.Context, host.Session) error {
	return fmt.Errorf("native engine on %s: %w", runtime.GOOS, host.ErrUnsupported)
}
