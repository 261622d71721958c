//go:build !linux

package agent

import "context"

// alone does nothing on this operating system, because the agent cannot change settings here. On Linux, it
// reserves a machine for one controller.
type alone struct{}

func (*alone) take(context.Context) error { return nil }
func (*alone) free(context.Context) error { return nil }
