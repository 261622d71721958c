//go:build !linux

package agent

import (
	"fmt"
	"runtime"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

func setHostname(string) error {
	return fmt.Errorf("%w on %s", host.ErrUnsupported, runtime.GOOS)
}

func guestInit() (tell func() error, err error) {
	return nil, fmt.Errorf("power off: %w on %s", host.ErrUnsupported, runtime.GOOS)
}
