//go:build !linux

package agent

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

func setHostname(string) error {
	return fmt.Errorf("%w on %s", host.ErrUnsupported, runtime.GOOS)
}

func guestInit() (tell func() error, err error) {
	return nil, fmt.Errorf("power off: %w on %s", host.ErrUnsupported, runtime.GOOS)
}

// separate says that no verb gets a process of its own: the agent's file is gone, and the kernel has no other
// name for the program that runs.
const separate = false

// listenExact opens a UDP socket whose packets are never fragmented by the sender and may not be on the way
// (ip(4) and ip6(4) of FreeBSD; macOS has it since version 11).
func listenExact(ctx context.Context, at netip.AddrPort) (*net.UDPConn, error) {
	network, level, name := "udp4", unix.IPPROTO_IP, unix.IP_DONTFRAG
	if at.Addr().Is6() {
		network, level, name = "udp6", unix.IPPROTO_IPV6, unix.IPV6_DONTFRAG
	}
	lc := net.ListenConfig{Control: func(_, _ string, rc syscall.RawConn) (err error) {
		ctl := rc.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), level, name, 1) })
		return cmp.Or(ctl, err)
	}}
	c, err := lc.ListenPacket(ctx, network, at.String())
	if err != nil {
		return nil, err
	}
	return c.(*net.UDPConn), nil
}

func findRoute(context.Context, FindRoute) (FoundRoute, error) {
	return FoundRoute{}, fmt.Errorf("the kernel's memory of ICMP errors: %w on %s", host.ErrUnsupported,
		runtime.GOOS)
}
