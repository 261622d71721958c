//go:build !linux || mips || mipsle

package traffic

import (
	"context"
	"fmt"
	"runtime"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// Serve answers that the engine's node half needs Linux. The program for MIPS, a router's and not a
// tester's, is kept small without it.
func (Responsive) Serve(context.Context, host.Session) error {
	return fmt.Errorf("responsiveness engine on %s/%s: %w", runtime.GOOS, runtime.GOARCH, host.ErrUnsupported)
}

// Serve answers like that of [Responsive].
func (XDP) Serve(context.Context, host.Session) error {
	return fmt.Errorf("xdp engine on %s/%s: %w", runtime.GOOS, runtime.GOARCH, host.ErrUnsupported)
}

// Serve answers like that of [Responsive].
func (e Flows) Serve(context.Context, host.Session) error { return noFlows(e.Name()) }

// Serve answers like that of [Responsive].
func (e Requests) Serve(context.Context, host.Session) error { return noFlows(e.Name()) }

func noFlows(engine string) error {
	return fmt.Errorf("%s engine on %s/%s: %w", engine, runtime.GOOS, runtime.GOARCH, host.ErrUnsupported)
}
