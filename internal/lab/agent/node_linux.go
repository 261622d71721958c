package agent

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

func setHostname(name string) error { return unix.Sethostname([]byte(name)) }

// guestInit returns a function that asks a guest's first process, our parent, to power off; no other process
// may be signalled.
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

// separate: isolated verbs are served in processes of their own.
const separate = true

// unfragmented returns the option of a socket whose packets must not be fragmented, locally or on the path
// (ip(7), IP_PMTUDISC_PROBE: it sets DF and ignores the cached path MTU, so that each size is really tried).
func unfragmented(ip6 bool) (level, name, value int) {
	if ip6 {
		return unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE
	}
	return unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE
}
