package agent

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

func setHostname(name string) error { return unix.Sethostname([]byte(name)) }

// guestInit returns a function that asks the guest's init process to power off the guest. guestInit fails if
// init is not our parent.
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

// separate reports whether isolated verbs run in child processes.
const separate = true

// unfragmented returns a socket option that forbids fragmentation by the sender and by routers.
// IP_PMTUDISC_PROBE (ip(7)) sets DF and ignores the cached path MTU, so that a packet of every size is sent.
func unfragmented(ip6 bool) (level, name, value int) {
	if ip6 {
		return unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE
	}
	return unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE
}
