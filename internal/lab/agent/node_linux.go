package agent

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

func setHostname(name string) error { return unix.Sethostname([]byte(name)) }

// guestInit is how a guest's first process, our parent, is told to power off; another must not be signalled.
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

// separate says that isolated verbs are served in processes of their own.
const separate = true

// listenExact opens a UDP socket whose packets are never fragmented by the sender and may not be on the way
// (ip(7), IP_PMTUDISC_PROBE: DF is set and the cached path MTU ignored, so that each size is really tried).
func listenExact(ctx context.Context, at netip.AddrPort) (*net.UDPConn, error) {
	network, level, name, probe := "udp4", unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE
	if at.Addr().Is6() {
		network, level, name, probe = "udp6", unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER,
			unix.IPV6_PMTUDISC_PROBE
	}
	lc := net.ListenConfig{Control: func(_, _ string, rc syscall.RawConn) (err error) {
		ctl := rc.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), level, name, probe) })
		return cmp.Or(ctl, err)
	}}
	c, err := lc.ListenPacket(ctx, network, at.String())
	if err != nil {
		return nil, err
	}
	return c.(*net.UDPConn), nil
}
