//go:build !linux

package agent

import "context"

// alone takes a machine for one controller that sets something there. Nothing is set on systems other than
// Linux.
type alone struct{}

func (*alone) take(context.Context) error { return nil }
func (*alone) free(context.Context) error { return nil }
