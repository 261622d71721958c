package agent

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

func setHostname(name string) error { return unix.Sethostname([]byte(name)) }

// guestInit is how a guest's first process, our parent, is told to power the guest off. Anybody else's must
// not be signalled.
func guestInit() (tell func() error, err error) {
	if os.Getppid() != 1 {
		return nil, fmt.Errorf("power off: %w: not started by a guest's first process", host.ErrUnsupported)
	}
	return func() error {
		if err := unix.Kill(1, unix.SIGTERM); err != nil {
			return fmt.Errorf("power off: signal the first process: %w", err)
		}
		return nil
	}, nil
}
