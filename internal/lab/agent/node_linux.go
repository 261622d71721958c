package agent

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

func setHostname(name string) error { return unix.Sethostname([]byte(name)) }

// askInit asks the first process of a guest, which is ours and our parent, to
// power the guest off.
func askInit() error {
	if os.Getppid() != 1 {
		return fmt.Errorf("power off: %w: not started by a guest's first process", host.ErrUnsupported)
	}
	if err := unix.Kill(1, unix.SIGTERM); err != nil {
		return fmt.Errorf("power off: signal the first process: %w", err)
	}
	return nil
}
