//go:build !linux

package tunnel

import (
	"io"
	"os"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

func openUserspaceDevice(request) (device, error) { return nil, kernel.ErrUnsupported }

func probeUserspaceDevice() check.Answer {
	return check.Not("userspace WireGuard is only set up on Linux so far")
}

func openName(string) (*os.File, error) { return nil, kernel.ErrUnsupported }

func own(string) (io.Closer, error) { return nil, kernel.ErrUnsupported }
