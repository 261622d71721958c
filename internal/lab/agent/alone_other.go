//go:build !linux

package agent

import "context"

// alone reserves a machine for one controller that changes settings. This system has no settings to change,
// so it does nothing.
type alone struct{}

func (*alone) take(context.Context) error { return nil }
func (*alone) free(context.Context) error { return nil }
