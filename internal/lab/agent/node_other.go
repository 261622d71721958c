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

// separate is false, because the agent cannot start a child process: its file has been removed, and the
// kernel offers no other path to the running program.
const separate = false

// unfragmented returns a socket option that forbids fragmentation by the sender and by routers (ip(4) and
// ip6(4) on FreeBSD; macOS 11 and later).
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
