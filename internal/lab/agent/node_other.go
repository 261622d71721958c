//go:build !linux

package agent

import (
	"context"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

func setHostname(string) error { return fmt.Errorf("%w on %s", host.ErrUnsupported, runtime.GOOS) }

func guestInit() (tell func() error, err error) {
	return nil, fmt.Errorf("power off: %w on %s", host.ErrUnsupported, runtime.GOOS)
}

// separate: no verb gets a process of its own, because the agent's file is gone and the kernel has no other
// name for the running program.
const separate = false

// unfragmented returns the option of a socket whose packets must not be fragmented, locally or on the path
// (ip(4) and ip6(4) of FreeBSD; macOS has it since version 11).
func unfragmented(ip6 bool) (level, name, value int) {
	if ip6 {
		return unix.IPPROTO_IPV6, unix.IPV6_DONTFRAG, 1
	}
	return unix.IPPROTO_IP, unix.IP_DONTFRAG, 1
}

func findRoute(context.Context, FindRoute) (FoundRoute, error) {
	return FoundRoute{}, fmt.Errorf("the kernel's memory of ICMP errors: %w on %s", host.ErrUnsupported,
		runtime.GOOS)
}
