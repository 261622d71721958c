//go:build !linux

package stream

import (
	"context"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// Serve is the node side of the native engine.
func (Native) Serve(ctx context.Context, s host.Session) error { return ServePortable(ctx, s) }
