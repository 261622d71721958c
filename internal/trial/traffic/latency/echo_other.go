//go:build !linux

package latency

import (
	"context"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// Serve is the node side of the probe.
func (Echo) Serve(ctx context.Context, s host.Session) error { return ServePortable(ctx, s) }
