//go:build !linux

package agent

import "context"

// alone reserves a machine for one controller that changes settings. On this operating system, it does
// nothing, because the agent cannot change settings.
type alone struct{}

func (*alone) take(context.Context) error { return nil }
func (*alone) free(context.Context) error { return nil }
