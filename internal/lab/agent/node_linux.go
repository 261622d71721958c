package agent

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

func setHostname(name string) error { return unix.Sethostname([]byte(name)) }

// guestInit returns a function that asks the guest's init process to power off. It returns an error unless
// init is our parent.
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

// separate selects child processes for isolated verbs.
const separate = true

// unfragmented returns the socket option that forbids fragmentation, both by the sender and on the path.
// IP_PMTUDISC_PROBE (ip(7)) sets DF and ignores the cached path MTU, so that every size is really tried.
func unfragmented(ip6 bool) (level, name, value int) {
	if ip6 {
		return unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE
	}
	return unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE
}
